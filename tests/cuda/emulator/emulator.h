/* emulator.h - the CUDA kernels of gem on the host, for tests: every thread of a cluster of CTAs is
 * a fiber, so kernels run as they are written, and what goes wrong on a device in silence ends the
 * program here with a sentence: lanes that do not meet, barriers that never open, copies that
 * outlive their CTA, too much shared memory. ASan sees device memory byte by byte.
 *
 * How threads interleave and when asynchronous work (copies, warpgroup products) is done follow
 * from a seed, GEM_EMULATOR_SEED: 0, the default, takes threads in turn and does everything at
 * once; others draw the next thread and the next CTA, and delay asynchronous work until it is
 * waited for or chance has it. A kernel without races gives the same bits for every seed.
 * GEM_EMULATOR_SMS: multiprocessors the device says it has, 8 unless set.
 *
 * Not emulated: time, order of memory between threads (each step is seen at once), the overlap of
 * kernels by dependent launch, caches. Sums of tensor cores are f32 sums in ascending k. */
#ifndef GEM_EMULATOR_H
#define GEM_EMULATOR_H

#include <cstddef>
#include <cstdint>
#include <functional>

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct uint3 {
    unsigned x, y, z;
};

extern uint3 gridDim, blockDim; /* of the kernel that runs */

namespace emulator
{

enum {
    CTA_BYTES = 256 * 1024,  /* of shared memory, from one CTA of a cluster to the next */
    SHARED_MOST = 227 * 1024 /* that a CTA may have: compute capability 9.0 */
};

struct cta;
struct warp;
struct thread {
    uint3 tid;
    int lane;
    warp *in;
    cta *of;
    void *sp;
};
extern thread *self; /* the thread that runs */
uint3 block_of(const thread *t);
[[noreturn]] void fail(const char *what);

/* ---- launches ---- */
void allow_shared(const void *kernel, int bytes);
void run(const void *kernel, dim3 grid, dim3 block, unsigned cluster, size_t shared,
         const std::function<void()> &body);

/* ---- shared memory ---- */
uint8_t *dynamic_shared();
void *static_shared(const void *site, size_t bytes, size_t alignment);
template <class T> T &shared(const void *site)
{
    return *(T *)static_shared(site, sizeof(T), alignof(T) < 16 ? 16 : alignof(T));
}
uint32_t address_of(const void *shared); /* in the cluster */
uint8_t *at(uint32_t address);
uint32_t of_rank(uint32_t address, int rank); /* the same place of that CTA */

/* ---- meeting ---- */
enum { SLOT = 64 };
struct slots {
    alignas(16) uint8_t in[32][SLOT], out[32][SLOT];
};
/* The lanes of mask meet, each with `bytes` of value. The last one calls `all`, if any, which may
 * fill `out`; what it returns stays until the lane's next meeting. what: lanes must agree on it. */
const slots &meet(uint32_t mask, const char *what, const void *value, size_t bytes,
                  void (*all)(slots &, void *) = nullptr, void *ctx = nullptr);
void bar_sync(int id, int n); /* n = 0: all threads of the CTA that have not ended */
void cluster_sync();

/* ---- asynchronous work ---- */
void barrier_init(uint32_t bar, int arrivals);
void barrier_arrive(uint32_t bar, uint32_t expected_bytes);
void barrier_await(uint32_t bar, uint32_t parity);
/* n bytes from src, or of `value` when src is NULL (16 at most), then counted by bar */
void copy_async(uint32_t dst, const void *src, const void *value, uint32_t n, uint32_t bar);
/* of this thread: group by group */
void copy_thread(uint32_t dst, const void *src, uint32_t valid);
void copy_commit();
void copy_wait(int left);
/* d[n / 2] of each lane (64 x n a warpgroup) (+)= a b: a of registers (NULL: of the descriptor);
 * b transposed: rows of k */
void wgmma(float *d, int n, const uint32_t *a, uint64_t a_tile, uint64_t b_tile, bool b_rows_of_k,
           bool add);
void wgmma_commit();
void wgmma_wait(int left);

/* a (16 x 16) b (16 x 8) as lanes hold them, f16: d += a b */
void mma16816(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
uint32_t movmatrix(uint32_t x);
void ldmatrix4(uint32_t r[4], uint32_t at, bool trans);

extern float half_values[65536];
inline float half_value(uint16_t h)
{
    return half_values[h];
}
uint16_t half_of(float x); /* nearest, ties to even */

} // namespace emulator

#endif
