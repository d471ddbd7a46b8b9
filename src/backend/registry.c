/* registry.c - which backends this build has. Adding one: its extern line and its entry. */
#include "backend/backend.h"

extern const gem_backend_ops gem_backend_cpu;
#ifdef GEM_HAVE_CUDA
extern const gem_backend_ops gem_backend_cuda;
#endif

static const gem_backend_ops *const backends[] = {
    &gem_backend_cpu, /* the first is the default */
#ifdef GEM_HAVE_CUDA
    &gem_backend_cuda,
#endif
};

const gem_backend_ops *gem_backend_find(const char *name)
{
    if (!name || !*name) return backends[0];
    for (size_t i = 0; i < ARRAY_LEN(backends); i++)
        if (strcmp(backends[i]->name, name) == 0) return backends[i];
    return NULL;
}

const char *gem_backend_names(void)
{
#ifdef GEM_HAVE_CUDA
    return "cpu, cuda";
#else
    return "cpu";
#endif
}
