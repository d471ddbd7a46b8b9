/* linear_blas.c - see linear_blas.h. Rows are columns to the library: D (n_rows x n) = W' X. */
#include "backend/cuda/linear_blas.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct shape {
    int64_t n, n_rows, k, ldy;
    bool half;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    bool usable;
} shape;

struct gem_cuda_blas {
    void *lib;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t desc;
    cublasLtMatmulPreference_t preference;
    shape *shape; /* [room] */
    int n_shapes, room;
    __typeof__(cublasLtCreate) *create;
    __typeof__(cublasLtDestroy) *destroy;
    __typeof__(cublasLtMatmulDescCreate) *desc_create;
    __typeof__(cublasLtMatmulDescDestroy) *desc_destroy;
    __typeof__(cublasLtMatmulDescSetAttribute) *desc_set;
    __typeof__(cublasLtMatrixLayoutCreate) *layout_create;
    __typeof__(cublasLtMatrixLayoutDestroy) *layout_destroy;
    __typeof__(cublasLtMatmulPreferenceCreate) *preference_create;
    __typeof__(cublasLtMatmulPreferenceDestroy) *preference_destroy;
    __typeof__(cublasLtMatmulPreferenceSetAttribute) *preference_set;
    __typeof__(cublasLtMatmulAlgoGetHeuristic) *heuristic;
    __typeof__(cublasLtMatmul) *matmul;
};

static bool find(void *lib, const char *name, void *slot)
{
    void *p = dlsym(lib, name);
    memcpy(slot, &p, sizeof(p));
    return p != NULL;
}

static bool bind(gem_cuda_blas *b)
{
    void *l = b->lib;
    return find(l, "cublasLtCreate", &b->create) && find(l, "cublasLtDestroy", &b->destroy) &&
           find(l, "cublasLtMatmulDescCreate", &b->desc_create) &&
           find(l, "cublasLtMatmulDescDestroy", &b->desc_destroy) &&
           find(l, "cublasLtMatmulDescSetAttribute", &b->desc_set) &&
           find(l, "cublasLtMatrixLayoutCreate", &b->layout_create) &&
           find(l, "cublasLtMatrixLayoutDestroy", &b->layout_destroy) &&
           find(l, "cublasLtMatmulPreferenceCreate", &b->preference_create) &&
           find(l, "cublasLtMatmulPreferenceDestroy", &b->preference_destroy) &&
           find(l, "cublasLtMatmulPreferenceSetAttribute", &b->preference_set) &&
           find(l, "cublasLtMatmulAlgoGetHeuristic", &b->heuristic) &&
           find(l, "cublasLtMatmul", &b->matmul);
}

static bool prepare(gem_cuda_blas *b)
{
    const cublasOperation_t t = CUBLAS_OP_T;
    const size_t work = GEM_CUDA_BLAS_WORK_BYTES;
    return b->create(&b->handle) == CUBLAS_STATUS_SUCCESS &&
           b->desc_create(&b->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS &&
           b->desc_set(b->desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof(t)) ==
               CUBLAS_STATUS_SUCCESS &&
           b->preference_create(&b->preference) == CUBLAS_STATUS_SUCCESS &&
           b->preference_set(b->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work,
                             sizeof(work)) == CUBLAS_STATUS_SUCCESS;
}

gem_cuda_blas *gem_cuda_blas_open(void)
{
    gem_cuda_blas *b = calloc(1, sizeof(*b));
    char name[64];
    if (!b) return NULL;
    snprintf(name, sizeof(name), "/usr/local/cuda/lib64/libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    b->lib = dlopen(strrchr(name, '/') + 1, RTLD_NOW | RTLD_LOCAL); /* where the system looks */
    if (!b->lib) b->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (b->lib && bind(b) && prepare(b)) return b;
    gem_cuda_blas_close(b);
    return NULL;
}

void gem_cuda_blas_close(gem_cuda_blas *b)
{
    if (!b) return;
    for (int i = 0; i < b->n_shapes; i++) {
        if (b->shape[i].a) b->layout_destroy(b->shape[i].a);
        if (b->shape[i].b) b->layout_destroy(b->shape[i].b);
        if (b->shape[i].d) b->layout_destroy(b->shape[i].d);
    }
    free(b->shape);
    if (b->preference) b->preference_destroy(b->preference);
    if (b->desc) b->desc_destroy(b->desc);
    if (b->handle) b->destroy(b->handle);
    if (b->lib) dlclose(b->lib);
    free(b);
}

/* Borrowed until the next call. A shape keeps its algorithm, and so its bits. */
static const shape *shape_of(gem_cuda_blas *b, int64_t n, int64_t n_rows, int64_t k, int64_t ldy,
                             bool half)
{
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    for (int i = 0; i < b->n_shapes; i++) {
        shape *x = &b->shape[i];
        if (x->n == n && x->n_rows == n_rows && x->k == k && x->ldy == ldy && x->half == half)
            return x;
    }
    if (b->n_shapes == b->room) {
        const int room = 2 * b->room + 64;
        shape *more = realloc(b->shape, (size_t)room * sizeof(*more));
        if (!more) return NULL;
        b->shape = more;
        b->room = room;
    }
    shape *x = &b->shape[b->n_shapes++];
    *x = (shape){.n = n, .n_rows = n_rows, .k = k, .ldy = ldy, .half = half};
    x->usable =
        b->layout_create(&x->a, CUDA_R_16F, (uint64_t)k, (uint64_t)n_rows, k) ==
            CUBLAS_STATUS_SUCCESS &&
        b->layout_create(&x->b, CUDA_R_16F, (uint64_t)k, (uint64_t)n, k) == CUBLAS_STATUS_SUCCESS &&
        b->layout_create(&x->d, half ? CUDA_R_16F : CUDA_R_32F, (uint64_t)n_rows, (uint64_t)n,
                         ldy) == CUBLAS_STATUS_SUCCESS &&
        b->heuristic(b->handle, b->desc, x->a, x->b, x->d, x->d, b->preference, 1, &result,
                     &found) == CUBLAS_STATUS_SUCCESS &&
        found > 0;
    if (x->usable) x->algo = result.algo;
    return x;
}

static int64_t padded(int32_t n)
{
    return (int64_t)gem_round_up((uint64_t)n, GEM_CUDA_TILE);
}

bool gem_cuda_blas_fits(gem_cuda_blas *b, int32_t n, int64_t n_rows, int64_t k, int64_t ldy,
                        bool half)
{
    const shape *x = shape_of(b, padded(n), n_rows, k, ldy, half);
    return x && x->usable;
}

bool gem_cuda_blas_linear(gem_cuda_blas *b, const gem_cuda_stream *s, const uint16_t *xh,
                          const uint16_t *w, int32_t n, int64_t n_rows, int64_t k, void *y,
                          int64_t ldy, bool half, void *work)
{
    const float factor = half ? 1.0f / GEM_CUDA_HALF_SCALE : 1, zero = 0;
    const shape *x = shape_of(b, padded(n), n_rows, k, ldy, half);
    if (!x || !x->usable) return false;
    return b->matmul(b->handle, b->desc, &factor, w, x->a, xh, x->b, &zero, y, x->d, y, x->d,
                     &x->algo, work, GEM_CUDA_BLAS_WORK_BYTES, s->stream) == CUBLAS_STATUS_SUCCESS;
}
