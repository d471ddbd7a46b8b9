/* runtime.cc - the CUDA runtime of the emulator: memory, streams, events, graphs. What a stream is
 * given runs at once, or is kept while the stream is captured. One lock: kernels run on one thread
 * of the host at a time. */
#include <chrono>
#include <mutex>

#include "cuda_runtime.h" /* behind the others: it makes words of theirs its own */

using work = std::function<void()>;
struct emulated_graph {
    std::vector<work> all;
};
struct emulated_stream {
    bool captures = false;
    emulated_graph kept;
};
struct emulated_event {
    double ms = 0;
};

static std::mutex lock;
static std::map<void *, size_t> blocks; /* of the device */
static size_t used;
static const size_t all_bytes = (size_t)8 << 30;

static cudaError_t give(cudaStream_t s, work w)
{
    std::lock_guard<std::mutex> held(lock);
    if (s && s->captures)
        s->kept.all.push_back(std::move(w));
    else
        w();
    return cudaSuccess;
}

cudaError_t emulator::launch(const cudaLaunchConfig_t &c, const void *kernel, work body)
{
    unsigned cluster = 1;
    for (unsigned i = 0; i < c.numAttrs; i++)
        if (c.attrs[i].id == cudaLaunchAttributeClusterDimension)
            cluster = c.attrs[i].val.clusterDim.x;
    const dim3 grid = c.gridDim, block = c.blockDim;
    const size_t shared = c.dynamicSmemBytes;
    return give(c.stream, [=] { emulator::run(kernel, grid, block, cluster, shared, body); });
}

extern "C" {

const char *cudaGetErrorName(cudaError_t e)
{
    return e ? "an error of the emulator" : "no error";
}
const char *cudaGetErrorString(cudaError_t e)
{
    return cudaGetErrorName(e);
}
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    const char *sms = getenv("GEM_EMULATOR_SMS");
    *p = {};
    snprintf(p->name, sizeof(p->name), "emulated by the host, for tests");
    p->major = GEM_EMULATOR_ARCH / 100;
    p->minor = GEM_EMULATOR_ARCH / 10 % 10;
    p->multiProcessorCount = sms ? atoi(sms) : 8;
    p->sharedMemPerBlockOptin = emulator::SHARED_MOST;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    std::lock_guard<std::mutex> held(lock);
    if (bytes > all_bytes - used || posix_memalign(p, 256, bytes ? bytes : 1)) {
        *p = nullptr;
        return cudaErrorMemoryAllocation;
    }
    memset(*p, 0xff, bytes);
    blocks[*p] = bytes;
    used += bytes;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p)
{
    std::lock_guard<std::mutex> held(lock);
    const auto b = blocks.find(p);
    if (!p) return cudaSuccess;
    if (b == blocks.end()) return cudaErrorInvalidValue;
    used -= b->second;
    blocks.erase(b);
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    return posix_memalign(p, 4096, bytes ? bytes : 1) ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void *p)
{
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *unused, size_t *all)
{
    *unused = all_bytes - used;
    *all = all_bytes;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind)
{
    memcpy(dst, src, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind,
                            cudaStream_t s)
{
    return give(s, [=] { memcpy(dst, src, bytes); });
}
cudaError_t cudaMemset(void *dst, int byte, size_t bytes)
{
    memset(dst, byte, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t s)
{
    return give(s, [=] { memset(dst, byte, bytes); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = new emulated_stream;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    delete s;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = new emulated_event;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    delete e;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    return give(s, [=] {
        const auto now = std::chrono::steady_clock::now().time_since_epoch();
        e->ms = std::chrono::duration<double, std::milli>(now).count();
    });
}
cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(to->ms - from->ms);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode)
{
    s->captures = true;
    s->kept.all.clear();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g)
{
    *g = new emulated_graph(s->kept);
    s->captures = false;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long)
{
    *x = new emulated_graph(*g);
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t)
{
    std::lock_guard<std::mutex> held(lock);
    for (const work &w : x->all)
        w();
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
    delete x;
    return cudaSuccess;
}

} // extern "C"
