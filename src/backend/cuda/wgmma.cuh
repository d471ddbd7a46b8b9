/* wgmma.cuh - how the warpgroup products of Hopper (ptx.cuh) are told where operands stand in
 * shared memory: in tiles of 64 values (128 bytes) a row, rows 128 bytes apart, 16-byte chunk c of
 * row r at c ^ (r & 7). */
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
    return (tile & 0xffffffff00000000u) | forgotten((uint32_t)tile);
}

#endif
