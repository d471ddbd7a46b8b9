/* measure.c - what programs take from the environment beside their options. */
#include "cmd/cli/measure.h"

#include "base/base.h"

#include <errno.h>
#include <stdlib.h>

bool cli_count(const char *text, int32_t min, int32_t max, int32_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < min || n > max) return false;
    *out = (int32_t)n;
    return true;
}

void cli_operator_finish(cli_operator_flags *f)
{
    const char *isa = getenv("GEM_CPU_ISA");
    if (!f->isa && isa && *isa) f->isa = isa;
}

const char *cli_tmp_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

gem_status cli_model_digest(const char *path, bool read, char hex[65], gem_error *err)
{
    const char *given = getenv("GEM_MODEL_SHA256");
    hex[0] = 0;
    if (read) return gem_sha256_file(path, hex, err);
    if (!given || !*given) return GEM_OK;
    if (strlen(given) != 64 || strspn(given, "0123456789abcdef") != 64)
        return gem_fail(
            err, GEM_E_ARG,
            "GEM_MODEL_SHA256 is no digest: 64 lower-case hexadecimal digits are needed");
    memcpy(hex, given, 65);
    return GEM_OK;
}
