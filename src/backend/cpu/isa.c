/* isa.c - which kernels this CPU can run. */
#include "backend/cpu/kernels.h"

#include <stdio.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#endif

typedef struct isa_entry {
    const char *name;
    void (*overlay)(gem_cpu_kernels *t);
    bool (*usable)(void);
} isa_entry;

static bool always(void)
{
    return true;
}

#if defined(__x86_64__)
static bool has_avx2(void)
{
    /* every CPU with AVX2 has F16C */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}
#elif defined(__aarch64__)
static bool has_neon_dot(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
#endif

/* Best first; `ref` needs no overlay. */
static const isa_entry isas[] = {
#if defined(__x86_64__)
    {"avx512", gem_cpu_kernels_avx512, has_avx512},
    {"avx2", gem_cpu_kernels_avx2, has_avx2},
#elif defined(__aarch64__)
    {"neon", gem_cpu_kernels_neon, has_neon_dot},
#endif
    {"ref", NULL, always},
};

int gem_cpu_isas(gem_cpu_isa *out, int max)
{
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(isas) && n < max; i++, n++) {
        out[n].name = isas[i].name;
        out[n].usable = isas[i].usable();
    }
    return n;
}

/* "NAME,attend=ref" or ",attend=ref": attention by the oracle, for comparisons on the same machine.
 */
static bool split_attend(const char **isa, char name[32])
{
    static const char route[] = ",attend=ref";
    size_t len = *isa ? strlen(*isa) : 0, n = sizeof(route) - 1;
    if (len < n || len - n >= 32 || strcmp(*isa + len - n, route) != 0) return false;
    memcpy(name, *isa, len - n);
    name[len - n] = 0;
    *isa = len > n ? name : NULL;
    return true;
}

gem_status gem_cpu_kernels_get(gem_cpu_kernels *t, const char *isa, gem_error *err)
{
    char have[64] = "", name[32];
    size_t len = 0;
    bool attend_ref = split_attend(&isa, name);
    gem_cpu_kernels ref;
    gem_cpu_kernels_ref(t);
    ref = *t;
    for (size_t i = 0; i < ARRAY_LEN(isas); i++) {
        if (!isas[i].usable()) continue;
        len +=
            (size_t)snprintf(have + len, sizeof(have) - len, "%s%s", len ? ", " : "", isas[i].name);
        if (isa && strcmp(isa, isas[i].name) != 0) continue;
        if (isas[i].overlay) isas[i].overlay(t);
        if (attend_ref) {
            t->attend = ref.attend;
            t->keys = ref.keys;
            t->attend_merge = ref.attend_merge;
            t->attend_finish = ref.attend_finish;
        }
        return GEM_OK;
    }
    return gem_fail(err, GEM_E_UNSUPPORTED, "cpu: no instruction set \"%s\" here; this CPU has: %s",
                    isa, have);
}
