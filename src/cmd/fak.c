/* fak.c - the program `fak`: the evidence graph, receipts, gates, attestations and profiles. */
#include "fak/fak.h"

#include <stdio.h>
#include <unistd.h>

static const char help[] =
    "usage: fak COMMAND [ARGUMENT...]\n"
    "\n"
    "  native-performance      the evidence graph, receipts, gates and profiles\n"
    "  bench system-baseline   run one benchmark repetition and attest how busy the host was\n"
    "  receipt fill            put records of gem-bench into a receipt template\n"
    "  report DIR --html FILE  one page about a folder of evidence\n"
    "\n"
    "fak COMMAND --help tells more; --version prints the version.\n";

static bool put(FILE *to, const gem_bytes *b)
{
    return b->len == 0 || fwrite(b->data, 1, b->len, to) == b->len;
}

static int usage_error(fak_io *io, const char *what)
{
    gem_bytes_printf(&io->err, "fak: %s\n%s", what, help);
    return 2;
}

static int dispatch(int argc, char **argv, fak_io *io)
{
    const char *command = argc > 1 ? argv[1] : "";
    if (strcmp(command, "native-performance") == 0)
        return fak_native_performance(argc - 2, argv + 2, io);
    if (strcmp(command, "bench") == 0) {
        if (argc > 2 && strcmp(argv[2], "system-baseline") == 0)
            return fak_system_baseline(argc - 3, argv + 3, io);
        return usage_error(io, "bench has one command: system-baseline");
    }
    if (strcmp(command, "receipt") == 0) {
        if (argc > 2 && strcmp(argv[2], "fill") == 0)
            return fak_receipt_fill(argc - 3, argv + 3, io);
        return usage_error(io, "receipt has one command: fill");
    }
    if (strcmp(command, "report") == 0) return fak_report(argc - 2, argv + 2, io);
    if (argc == 2 && (strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0 ||
                      strcmp(command, "help") == 0)) {
        gem_bytes_put(&io->out, help, strlen(help));
        return 0;
    }
    if (argc == 2 && strcmp(command, "--version") == 0) {
        gem_bytes_printf(&io->out, "fak %s\n", GEM_VERSION);
        return 0;
    }
    return usage_error(io, argc > 1 ? "unknown command" : "a command is needed");
}

int main(int argc, char **argv)
{
    fak_io io;
    fak_io_system(&io);
    int status = dispatch(argc, argv, &io);
    bool ok = put(stdout, &io.out) && fflush(stdout) == 0;
    put(stderr, &io.err);
    if (!ok) {
        fprintf(stderr, "fak: NPI-002 -: standard output could not be written\n");
        if (status == 0) status = 1;
    }
    fak_io_free(&io);
    return status;
}
