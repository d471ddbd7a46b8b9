/* replay.c - runs a fuzz target over the files of its corpus, for builds without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return 0;
    uint8_t *buf = NULL;
    size_t n = 0, cap = 0, got;
    do {
        if (n == cap) {
            cap = cap ? cap * 2 : 4096;
            buf = realloc(buf, cap);
            if (!buf) abort();
        }
        got = fread(buf + n, 1, cap - n, f);
        n += got;
    } while (got);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); /* exact size, so that ASan sees an overread */
    if (!exact) abort();
    memcpy(exact, buf ? buf : (uint8_t *)"", n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    free(buf);
    return 1;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            count += run_file(argv[i]);
            continue;
        }
        for (struct dirent *e; (e = readdir(d));) {
            if (e->d_name[0] == '.') continue;
            char path[4096];
            snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
            count += run_file(path);
        }
        closedir(d);
    }
    printf("%d inputs replayed\n", count);
    return count ? 0 : 1;
}
