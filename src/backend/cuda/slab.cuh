/* slab.cuh - the slab layout of a weight: 16 rows x 256 values of k, contiguous, in the order in
 * which a warp's lanes feed m16n8k16 tensor-core products. Slabs of a tile of 16 rows follow each
 * other along k; tiles follow each other. Bytes are those of the file's blocks, no more.
 *
 * Lane l of a warp: g = l / 4, t = l % 4; it holds values of rows g and g + 8. Of a 32-block it
 * owns the eight k = 8 j + 2 t + e, j = 0..3, e = 0, 1. Offsets in a slab: Q4_0, Q4_K, Q5_K, Q6_K:
 * low nibbles, 2048 B: [4 pairs of blocks][lane][4 words]; words: row g block 0, row g + 8 block 0,
 * row g block 1, row g + 8 block 1; nibble j + 4 e of a word. So `w & 0x000f000f` is the pair (k, k
 * + 1) of j = 0, and so on after shifts by 4. Q4_0   + 2048: f16 d [16 rows][8 blocks] Q4_K   +
 * 2048: [16 rows]: the file's 16 bytes of a block: d, dmin, scales Q5_K   + 2048: fifth bits, 512
 * B: [lane][4 words]: row g blocks 0-3, row g + 8 blocks 0-3, row g blocks 4-7, row g + 8 blocks
 * 4-7; pair (block b % 4, j) at bits 4 (b % 4) + j and 16 more
 *          + 2560: as Q4_K + 2048
 *   Q6_K   + 2048: upper two bits, 1024 B: [2][lane][4 words]: half h: row g blocks 4h, 4h + 1; row
 *          g + 8 the same; row g blocks 4h + 2, 4h + 3; row g + 8 the same; pair (b % 2, j) at bits
 *          2 (4 (b % 2) + j) and 16 more
 *          + 3072: i8 scales [16 rows][16]; + 3328: f16 d [16 rows]
 *   Q8_0   bytes + 128, 4096 B: [8 blocks][lane][4 words]: row g j = 0, 1; row g j = 2, 3; row g +
 * 8 the same; a word's bytes: (j, e) = (0, 0), (1, 0), (0, 1), (1, 1)
 *          + 4096: f16 d [16 rows][8 blocks]
 * The idea of feeding the nibbles as subnormal f16 numbers (q * 2^-24, exact) and scaling the f32
 * sum of a block: docs/cuda.md. */
#ifndef GEM_CUDA_SLAB_CUH
#define GEM_CUDA_SLAB_CUH

#include "backend/cuda/dequant.cuh"

__host__ __device__ constexpr int slab_bytes(int t)
{
    return t == GEM_DTYPE_Q8_0   ? 4352
           : t == GEM_DTYPE_Q6_K ? 3360
           : t == GEM_DTYPE_Q5_K ? 2816
                                 : 2304;
}
__host__ __device__ constexpr int slab_extra(int t) /* where scales begin */
{
    return t == GEM_DTYPE_Q8_0   ? 4096
           : t == GEM_DTYPE_Q6_K ? 3072
           : t == GEM_DTYPE_Q5_K ? 2560
                                 : 2048;
}

/* Values 8 o .. 8 o + 7 of weight row r, from slabs; bit for bit what octet() gives of the file. */
template <int T>
__device__ inline void slab_octet(const uint8_t *w, int64_t k, int64_t r, int64_t o, float v[8])
{
    const uint8_t *slab = w + (r / 16 * (k / 256) + o / 32) * slab_bytes(T);
    const uint8_t *extra = slab + slab_extra(T);
    int row = (int)(r % 16), g = row % 8, up = row / 8, b = (int)(o / 4 % 8), j = (int)(o % 4);
    float d, m = 0;
    if (T == GEM_DTYPE_Q4_0 || T == GEM_DTYPE_Q8_0) {
        d = half_at(extra + 16 * row + 2 * b);
    } else if (T == GEM_DTYPE_Q6_K) {
        d = __fmul_rn(half_at(extra + 256 + 2 * row),
                      (float)(int8_t)extra[16 * row + 2 * b + j / 2]);
    } else {
        int scale, min;
        k4_scale_min(extra + 16 * row + 4, b, &scale, &min);
        d = __fmul_rn(half_at(extra + 16 * row), (float)scale);
        m = -__fmul_rn(half_at(extra + 16 * row + 2), (float)min);
    }
#pragma unroll
    for (int t = 0; t < 4; t++) {
        int lane = 4 * g + t;
        if (T == GEM_DTYPE_Q8_0) {
            uint32_t x = *(const uint32_t *)(slab + 512 * b + 16 * lane + 4 * (2 * up + j / 2));
            v[2 * t] = __fmul_rn(d, (float)((int)(x >> (8 * (j % 2)) & 255) - 128));
            v[2 * t + 1] = __fmul_rn(d, (float)((int)(x >> (8 * (j % 2) + 16) & 255) - 128));
            continue;
        }
        uint32_t x = *(const uint32_t *)(slab + 512 * (b / 2) + 16 * lane + 4 * (2 * (b % 2) + up));
        int q0 = x >> (4 * j) & 15, q1 = x >> (4 * j + 16) & 15, offset = 0;
        if (T == GEM_DTYPE_Q5_K) {
            uint32_t h = *(const uint32_t *)(slab + 2048 + 16 * lane + 4 * (2 * (b / 4) + up));
            q0 |= (h >> (4 * (b % 4) + j) & 1) << 4;
            q1 |= (h >> (4 * (b % 4) + j + 16) & 1) << 4;
        }
        if (T == GEM_DTYPE_Q6_K) {
            uint32_t h = *(const uint32_t *)(slab + 2048 + 512 * (b / 4) + 16 * lane +
                                             4 * (2 * (b / 2 % 2) + up));
            q0 |= (h >> (2 * (4 * (b % 2) + j)) & 3) << 4;
            q1 |= (h >> (2 * (4 * (b % 2) + j) + 16) & 3) << 4;
            offset = 32;
        }
        if (T == GEM_DTYPE_Q4_0) offset = 8;
        v[2 * t] = __fmul_rn(d, (float)(q0 - offset));
        v[2 * t + 1] = __fmul_rn(d, (float)(q1 - offset));
        if (T == GEM_DTYPE_Q4_K || T == GEM_DTYPE_Q5_K) {
            v[2 * t] = __fadd_rn(v[2 * t], m);
            v[2 * t + 1] = __fadd_rn(v[2 * t + 1], m);
        }
    }
}

#endif
