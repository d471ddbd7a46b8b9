/* cuda_image.c - contents of KV pages and of slots of recurrent state, out of the device and back:
 * what disk caches keep. They go through a stream of their own, so that another thread may take
 * them beside a run; a page that was copied just before is waited for. A copy that failed is
 * the next run's failure. */
#include "backend/cuda/cuda_backend.h"

gem_status gem_cuda_image_open(gem_backend *be, gem_error *err)
{
    cudaError_t e = cudaStreamCreateWithFlags(&be->images, cudaStreamNonBlocking);
    if (!e) e = cudaEventCreateWithFlags(&be->copied, cudaEventDisableTiming);
    return e ? gem_cuda_fail(err, e, "making a stream for pages") : GEM_OK;
}

void gem_cuda_image_close(gem_backend *be)
{
    if (be->copied) cudaEventDestroy(be->copied);
    if (be->images) cudaStreamDestroy(be->images);
}

/* The first failure stays. */
static void remember(gem_backend *be, cudaError_t e)
{
    int none = 0;
    if (e) atomic_compare_exchange_strong(&be->image_error, &none, (int)e);
}

void gem_cuda_copy_page(gem_backend *be, int pool, int32_t dst, int32_t src)
{
    const size_t bytes = gem_kv_page_bytes(&be->opt.pool[pool]);
    cudaError_t e = cudaSetDevice(be->device_id);
    if (!e)
        e = cudaMemcpyAsync(be->pool[pool] + (size_t)dst * bytes,
                            be->pool[pool] + (size_t)src * bytes, bytes, cudaMemcpyDeviceToDevice,
                            be->s.stream);
    if (!e) e = cudaEventRecord(be->copied, be->s.stream);
    remember(be, e);
}

static bool out(const gem_backend *be, void *to, const void *from, size_t bytes)
{
    cudaError_t e = cudaSetDevice(be->device_id);
    if (!e) e = cudaStreamWaitEvent(be->images, be->copied, 0);
    if (!e) e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, be->images);
    if (!e) e = cudaStreamSynchronize(be->images);
    return !e;
}

static void in(gem_backend *be, void *to, const void *from, size_t bytes)
{
    cudaError_t e = cudaSetDevice(be->device_id);
    if (!e) e = cudaStreamWaitEvent(be->images, be->copied, 0);
    if (!e) e = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, be->images);
    if (!e) e = cudaStreamSynchronize(be->images);
    remember(be, e);
}

bool gem_cuda_read_page(const gem_backend *be, int pool, int32_t page, void *to)
{
    const size_t bytes = gem_kv_page_bytes(&be->opt.pool[pool]);
    return out(be, to, be->pool[pool] + (size_t)page * bytes, bytes);
}

void gem_cuda_write_page(gem_backend *be, int pool, int32_t page, const void *from)
{
    const size_t bytes = gem_kv_page_bytes(&be->opt.pool[pool]);
    in(be, be->pool[pool] + (size_t)page * bytes, from, bytes);
}

/* A slot holds its layers one behind the other, and nothing else. */
bool gem_cuda_read_state(const gem_backend *be, int32_t slot, void *to)
{
    const size_t bytes = gem_recurrent_bytes(&be->plan->recurrent);
    return out(be, to, (const uint8_t *)be->states + (size_t)slot * bytes, bytes);
}

void gem_cuda_write_state(gem_backend *be, int32_t slot, const void *from)
{
    const size_t bytes = gem_recurrent_bytes(&be->plan->recurrent);
    in(be, (uint8_t *)be->states + (size_t)slot * bytes, from, bytes);
}
