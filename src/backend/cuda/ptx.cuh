/* ptx.cuh - the instructions that CUDA C++ has no name for, a function each (PTX ISA 8.0): all
 * inline assembler of the kernels is here. Shared memory is named by 32-bit addresses (shared_at).
 * Statements marked volatile keep their order among each other. tests/cuda/emulator has the same
 * functions for the host. */
#ifndef GEM_CUDA_PTX_CUH
#define GEM_CUDA_PTX_CUH

#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/* A CTA's shared memory: `type name` of the size written in the type, SHARED(float[33], sums), and
 * what is sized at the launch. */
template <class T> using shared_type = T;
#define SHARED(type, name) __shared__ shared_type<type> name
#define DYNAMIC_SHARED(type, name, alignment)                                                      \
    extern __shared__ __align__(alignment)                                                         \
    type name[]

__device__ inline uint32_t shared_at(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* First statement of every kernel. The next kernel may be placed at once (it waits itself); nothing
 * that an earlier kernel wrote is touched before the wait returns, and nothing is written before it
 * either, so that completion stays transitive along the stream. */
__device__ inline void dependents_go()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
__device__ inline void dependency_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- what the compiler should know or not ---- */

/* x is loaded here. */
template <class X> __device__ inline void touch(const X *x)
{
    asm volatile("" ::"l"(x));
}
__device__ inline void touch(int64_t x)
{
    asm volatile("" ::"l"(x));
}
__device__ inline void touch(int32_t x)
{
    asm volatile("" ::"r"(x));
}
__device__ inline void touch(float x)
{
    asm volatile("" ::"f"(x));
}
/* Both are known here, and nothing is known of them. */
template <class X, class Y> __device__ inline void settle(X *&x, Y *&y)
{
    asm volatile("" : "+l"(x), "+l"(y));
}
__device__ inline uint32_t forgotten(uint32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

/* ---- barriers, order ---- */

/* Barrier `id` (1 to 15) of `n` threads. */
__device__ inline void bar_sync(int id, int n)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
/* What this thread stored to shared memory is there for bulk copies and warpgroup products. */
__device__ inline void fence_async()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/* *p += x; the value before. */
__device__ inline int32_t add_acquire_release(int32_t *p, int32_t x)
{
    int32_t before;
    asm volatile("atom.add.acq_rel.gpu.s32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(p), "r"(x)
                 : "memory");
    return before;
}
__device__ inline void prefetch_l2(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

/* ---- copies of a thread (sm_80) ---- */

__device__ inline void copy16(uint32_t dst, const void *src)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
}
/* zeros when !valid */
__device__ inline void copy16(uint32_t dst, const void *src, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src),
                 "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ inline void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> __device__ inline void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* ---- products of a warp (sm_80) ---- */

__device__ inline void ldmatrix4(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
__device__ inline void ldmatrix4_trans(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
/* ldmatrix4 whose order among other volatile statements, barriers too, stays; plain loads may pass
 * it. */
__device__ inline uint4 ldmatrix4_plain(uint32_t at)
{
    uint4 x;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(at));
    return x;
}
/* A warp's 8 x 8 matrix of f16, transposed. */
__device__ inline uint32_t movmatrix(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
/* d (16 x 8, f32) += a (16 x 16) b (16 x 8), f16 operands */
__device__ inline void mma16816(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* The same, which the compiler may move. */
__device__ inline void mma16816(float d[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* ---- barriers in shared memory, bulk copies, clusters (sm_90) ---- */

#if __CUDA_ARCH__ >= 900
__device__ inline void barrier_init(uint32_t bar, int arrivals = 1)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
/* Barriers are there for the copy engine and the cluster. */
__device__ inline void barriers_visible()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* Arrives; the phase also waits for so many bytes. */
__device__ inline void expect(uint32_t bar, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}
/* Returns when the phase of that parity has ended. */
__device__ inline void await(uint32_t bar, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred p;\n"
                 "again%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again%=;\n"
                 "}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}

__device__ inline uint64_t evict_normal()
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(p));
    return p;
}
__device__ inline uint64_t evict_first()
{
    uint64_t p;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p));
    return p;
}
/* A bulk copy that `bar` counts; all 16-byte aligned. */
__device__ inline void copy(uint32_t dst, const void *src, uint32_t bytes, uint32_t bar,
                            uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4;" ::"r"(dst),
                 "l"(src), "r"(bytes), "r"(bar), "l"(policy)
                 : "memory");
}

/* Every thread of the cluster has come; what they wrote before is seen. */
__device__ inline void cluster_sync()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}
/* 16 bytes to the same place of the CTA of that rank, counted by its barrier at the same place as
 * `bar`: number and signal are one trip. */
__device__ inline void store_async(float4 *to, uint64_t *bar, int rank, float4 x)
{
    asm volatile("{\n"
                 ".reg .b32 there, signal;\n"
                 "mapa.shared::cluster.u32 there, %0, %2;\n"
                 "mapa.shared::cluster.u32 signal, %1, %2;\n"
                 "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], "
                 "{%3, %4, %5, %6}, [signal];\n"
                 "}" ::"r"(shared_at(to)),
                 "r"(shared_at(bar)), "r"(rank), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}
__device__ inline void store_cluster(float *to, int rank, float x)
{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(shared_at(to)), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(x) : "memory");
}
#endif

/* ---- products of a warpgroup (sm_90a): f16 operands, f32 sums; descriptors: wgmma.cuh ---- */

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <int N> __device__ inline void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> __device__ inline void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
__device__ inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int LEFT> __device__ inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* d (64 x 64) (+)= a (64 x 16) b' (64 x 16), both in shared memory */
__device__ inline void wgmma_qk(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
                 "}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]),
                   "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
                   "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(add));
}

/* The same, 32 columns. */
__device__ inline void wgmma_qk(float (&d)[16], uint64_t a, uint64_t b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
                 "}, %16, %17, p, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),
                   "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]),
                   "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "l"(a), "l"(b), "r"(add));
}

/* The 128 sums of a thread as the assembler names them, and as operands. */
#define WGMMA_128_NAMES                                                                            \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "   \
    "%127"
#define WGMMA_SUMS_8(d, i)                                                                         \
    "+f"(d[i + 0]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),                \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define WGMMA_SUMS_32(d, i)                                                                        \
    WGMMA_SUMS_8(d, i), WGMMA_SUMS_8(d, i + 8), WGMMA_SUMS_8(d, i + 16), WGMMA_SUMS_8(d, i + 24)
#define WGMMA_128_SUMS(d)                                                                          \
    WGMMA_SUMS_32(d, 0), WGMMA_SUMS_32(d, 32), WGMMA_SUMS_32(d, 64), WGMMA_SUMS_32(d, 96)

/* d (64 x 256) += a (64 x 16, registers) b (16 x 256, as its rows stand in memory) */
__device__ inline void wgmma_pv(float (&d)[128], const uint32_t a[4], uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" WGMMA_128_NAMES
                 "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1;\n}"
                 : WGMMA_128_SUMS(d)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1));
}

/* The same, a in shared memory too. */
__device__ inline void wgmma_pv(float (&d)[128], uint64_t a, uint64_t b)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" WGMMA_128_NAMES
                 "}, %128, %129, p, 1, 1, 0, 1;\n}"
                 : WGMMA_128_SUMS(d)
                 : "l"(a), "l"(b), "n"(1));
}

#undef WGMMA_128_NAMES
#undef WGMMA_SUMS_8
#undef WGMMA_SUMS_32
#undef WGMMA_128_SUMS

#endif

#endif
