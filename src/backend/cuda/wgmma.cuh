/* wgmma.cuh - the warpgroup products of Hopper that attention of many rows uses, as functions: f16
 * operands, f32 sums. Operands in shared memory stand in tiles of 64 values (128 bytes) a row, rows
 * 128 bytes apart, 16-byte chunk c of row r at c ^ (r & 7). Only in code for sm_90a. */
#ifndef GEM_CUDA_WGMMA_CUH
#define GEM_CUDA_WGMMA_CUH

#include "backend/cuda/device.cuh"

/* Tiles of 64 columns `column_stride` bytes apart (0: of one tile at most), groups of 8 rows 1,024.
 */
__device__ inline uint64_t wgmma_tile(uint32_t at, uint32_t column_stride)
{
    return (uint64_t)(at >> 4 & 0x3fffu) | (uint64_t)(column_stride >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
/* The operand `bytes` further on. */
__device__ inline uint64_t wgmma_ahead(uint64_t tile, int bytes)
{
    return (tile & 0xffffffff00000000u) | ((uint32_t)tile + (uint32_t)(bytes >> 4));
}
/* The same operand, of which the compiler knows nothing: what is computed from it inside a loop is
 * not kept in registers across the loop. */
__device__ inline uint64_t wgmma_anew(uint64_t tile)
{
    uint32_t low = (uint32_t)tile;
    asm volatile("" : "+r"(low));
    return (tile & 0xffffffff00000000u) | low;
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
