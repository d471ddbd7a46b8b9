/* Every mode that reads documents, on any bytes. The first byte picks the mode; a byte 0xFE parts
 * the inputs of modes that read two. Exit statuses stay within the table, failures leave standard
 * output empty, and success is repeatable. */
#include "fak/fak.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct inputs {
    const char *data[2];
    size_t len[2];
} inputs;

static gem_status read_input(fak_io *io, const char *path, size_t limit, gem_bytes *out,
                             gem_error *err)
{
    const inputs *in = io->user;
    int i = path[0] == 'B';
    if (in->len[i] > limit) return gem_fail(err, GEM_E_RANGE, "too large");
    gem_bytes_put(out, in->data[i], in->len[i]);
    return GEM_OK;
}

static gem_status write_nothing(fak_io *io, const char *path, const void *data, size_t len,
                                gem_error *err)
{
    (void)io, (void)path, (void)data, (void)len, (void)err;
    return GEM_OK;
}

static bool never_same(fak_io *io, const char *a, const char *b)
{
    (void)io, (void)a, (void)b;
    return false;
}

static const struct {
    int command; /* native-performance, system-baseline, receipt fill */
    int argc;
    char *argv[6];
} modes[] = {{0, 2, {"--validate", "A"}},
             {0, 2, {"--graph", "A"}},
             {0, 3, {"--graph", "A", "--dot"}},
             {0, 3, {"--graph", "A", "--next"}},
             {0, 3, {"--graph", "A", "--json"}},
             {0, 4, {"--compare", "A", "--candidate", "B"}},
             {0, 4, {"--attach-receipt", "A", "--system-baseline", "B"}},
             {0, 2, {"--gate", "A"}},
             {0, 2, {"--profile", "A"}},
             {0, 2, {"--profile-next", "A"}},
             {0, 4, {"--profile-next", "A", "--graph", "B"}},
             {0, 4, {"--graph", "A", "--baseline", "metal.paged-kv"}},
             {1, 2, {"--verify", "A"}},
             {2, 5, {"A", "--bench", "B", "--machine", "m"}}};

static int run(size_t mode, inputs *in, fak_io *io)
{
    memset(io, 0, sizeof(*io));
    io->read = read_input;
    io->write = write_nothing;
    io->same = never_same;
    io->user = in;
    static int (*const commands[])(int, char **, fak_io *) = {
        fak_native_performance, fak_system_baseline, fak_receipt_fill};
    return commands[modes[mode].command](modes[mode].argc, (char **)modes[mode].argv, io);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    size_t mode = (data[0] & 0x7F) % ARRAY_LEN(modes);
    const char *text = (const char *)data + 1, *cut = memchr(text, 0xFE, size - 1);
    inputs in = {{text, cut ? cut + 1 : text}, {cut ? (size_t)(cut - text) : size - 1, 0}};
    in.len[1] = cut ? size - 2 - in.len[0] : size - 1;
    fak_io first, second;
    int a = run(mode, &in, &first), b = a;
    bool twice = (data[0] & 0x80) !=
                 0; /* repeatability costs half the speed: by the first byte's high bit */
    if (twice)
        b = run(mode, &in, &second);
    else
        memset(&second, 0, sizeof(second));
    bool ok = a == b && a >= 0 && a <= 4 && a != 2;
    if (twice)
        ok = ok && first.out.len == second.out.len && first.err.len == second.err.len &&
             (first.out.len == 0 || memcmp(first.out.data, second.out.data, first.out.len) == 0);
    ok = ok && (a == 1 ? first.out.len == 0 && first.err.len > 0 : first.out.len > 0);
    if (!ok) abort();
    fak_io_free(&first);
    fak_io_free(&second);
    return 0;
}
