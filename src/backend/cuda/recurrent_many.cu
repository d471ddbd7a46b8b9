/* recurrent_many.cu - around the delta rule of many rows: the short convolution, and the gated norm
 * that goes straight to the next product's f16. Bound: memory; a value is read and written once.
 * Convolution: a thread takes four channels of 32 rows, so that a raw input is read once and not
 * four times. Figures: docs/cuda.md. */
#include "backend/cuda/recurrent.cuh"

namespace
{

enum { CONV_CTA = 128, CONV_ROWS = 32, AHEAD = 8, FINISH_CTA = 256, WARPS = FINISH_CTA / 32 };
enum { FINISH_DIM = 128, FINISH_HEADS = 8 /* of a warp */ };

/* Four values of a view of one part. */
__device__ inline float4 view_quad(const gem_cuda_view &v, int64_t r, int64_t i)
{
    float4 x = __ldcg((const float4 *)(v.data + r * v.ld + i));
    if (v.row_scale) {
        const float f = __ldcg(v.row_scale + r);
        x = make_float4(x.x * f, x.y * f, x.z * f, x.w * f);
    }
    return v.bias ? add4(x, *(const float4 *)(v.bias + i)) : x;
}

__device__ inline float silu(float x)
{
    return activate_fast(GEM_ACT_SILU, x);
}

/* grid: channels in fours, places of rows */
__global__ void __launch_bounds__(CONV_CTA)
    conv_many(gem_cuda_recurrent c, gem_cuda_view src, const float *w, float eps, int32_t n,
              float *dst, int64_t ld)
{
    const int hd = c.r.head_dim, lanes = hd / 4;
    const int64_t channel = 4 * ((int64_t)blockIdx.x * CONV_CTA + threadIdx.x);
    const bool in = channel < channels(c.r);
    const int h = (int)(channel / hd);
    dependents_go();
    float4 taps[4] = {}; /* of a channel each */
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (in) taps[i] = *(const float4 *)(w + (channel + i) * GEM_CONV_TAPS);
    dependency_wait();
    const int32_t from = (int32_t)blockIdx.y * CONV_ROWS, to = min(n, from + CONV_ROWS);
    float4 past[TAIL] = {};
    int32_t seq = -1;
#pragma unroll 1
    for (int32_t place = from; place < to; place += AHEAD) {
        float4 now[AHEAD];
        int32_t row[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            row[i] = c.order[min(place + i, to - 1)];
            now[i] = in ? view_quad(src, row[i], channel) : make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (place + i >= to) break; /* the same for all threads */
            const int32_t s = c.seq_of[place + i];
            if (s != seq) {
                const gem_cuda_seq g = c.seq[s];
                const int32_t pos = g.pos + place + i - g.first;
                seq = s;
#pragma unroll
                for (int j = 0; j < TAIL; j++) {
                    const int32_t there = pos - TAIL + j;
                    if (!in) continue;
                    if (there >= g.pos) {
                        past[j] = view_quad(src, c.order[g.first + there - g.pos], channel);
                        continue;
                    }
                    past[j] = make_float4(raw_input(c, src, s, there, channel),
                                          raw_input(c, src, s, there, channel + 1),
                                          raw_input(c, src, s, there, channel + 2),
                                          raw_input(c, src, s, there, channel + 3));
                }
            }
            const float4 x = now[i];
            const auto one = [](float4 t, float a, float b, float c, float d) {
                return silu(fmaf(t.w, d, fmaf(t.z, c, fmaf(t.y, b, t.x * a))));
            };
            float4 y = make_float4(one(taps[0], past[0].x, past[1].x, past[2].x, x.x),
                                   one(taps[1], past[0].y, past[1].y, past[2].y, x.y),
                                   one(taps[2], past[0].z, past[1].z, past[2].z, x.z),
                                   one(taps[3], past[0].w, past[1].w, past[2].w, x.w));
            past[0] = past[1], past[1] = past[2], past[2] = x;
            float sum = fmaf(y.x, y.x, fmaf(y.y, y.y, fmaf(y.z, y.z, y.w * y.w)));
            for (int m = 1; m < lanes; m *= 2)
                sum += __shfl_xor_sync(~0u, sum, m);
            if (h < 2 * c.r.n_k_heads) { /* queries and keys */
                const float f = (h < c.r.n_k_heads ? rsqrtf((float)hd) : 1.0f) * rsqrtf(sum + eps);
                y = make_float4(y.x * f, y.y * f, y.z * f, y.w * f);
            }
            if (in) *(float4 *)(dst + row[i] * ld + channel) = y;
        }
    }
}

/* A CTA a row, a warp a head in turn. */
__global__ void __launch_bounds__(FINISH_CTA)
    finish_many(const float *o, int64_t ldo, gem_cuda_view z, const float *norm, int n_heads,
                float eps, int32_t n, uint16_t *xh, float *scale)
{
    SHARED(float[WARPS], tops);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t r = blockIdx.x, width = (int64_t)n_heads * FINISH_DIM;
    uint2 *out = (uint2 *)(xh + r * width);
    dependents_go();
    const float4 w = ((const float4 *)norm)[lane];
    dependency_wait();
    if (r >= n) {
        for (int i = threadIdx.x; i < width / 4; i += FINISH_CTA)
            out[i] = make_uint2(0, 0);
        return;
    }
    float4 y[FINISH_HEADS], g[FINISH_HEADS];
    float top = 0;
#pragma unroll
    for (int j = 0; j < FINISH_HEADS; j++) {
        const int h = warp + j * WARPS;
        y[j] = g[j] = make_float4(0, 0, 0, 0);
        if (h >= n_heads) continue;
        y[j] = __ldcg((const float4 *)(o + r * ldo + (int64_t)h * FINISH_DIM) + lane);
        g[j] = view_quad(z, r, (int64_t)h * FINISH_DIM + 4 * lane);
    }
#pragma unroll
    for (int j = 0; j < FINISH_HEADS; j++) {
        const float4 x = y[j];
        const float sum = warp_sum(fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, x.w * x.w))));
        const float f = rsqrtf(sum / (float)FINISH_DIM + eps);
        y[j] = make_float4(x.x * f * w.x * silu(g[j].x), x.y * f * w.y * silu(g[j].y),
                           x.z * f * w.z * silu(g[j].z), x.w * f * w.w * silu(g[j].w));
        top = fmaxf(
            top, fmaxf(fmaxf(fabsf(y[j].x), fabsf(y[j].y)), fmaxf(fabsf(y[j].z), fabsf(y[j].w))));
    }
    top = warp_max(top);
    if (lane == 0) tops[warp] = top;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; i++)
        top = fmaxf(top, tops[i]);
    const float up = f16_scale(top);
#pragma unroll
    for (int j = 0; j < FINISH_HEADS; j++) {
        const int h = warp + j * WARPS;
        if (h >= n_heads) continue;
        const __half2 a = __floats2half2_rn(y[j].x * up, y[j].y * up),
                      b = __floats2half2_rn(y[j].z * up, y[j].w * up);
        out[h * (FINISH_DIM / 4) + lane] = make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
    }
    if (threadIdx.x == 0) scale[r] = 1.0f / up;
}

} // namespace

bool gem_cuda_conv_many_fits(const gem_recurrent &r, const gem_cuda_view &src)
{
    return src.n_parts == 1 && (r.head_dim == 32 || r.head_dim == 64 || r.head_dim == 128);
}

cudaError_t gem_cuda_conv_many(const gem_cuda_stream *s, const gem_cuda_recurrent *c,
                               gem_cuda_view src, const float *w, float eps, int32_t n, float *dst,
                               int64_t ld)
{
    const dim3 grid((unsigned)((channels(c->r) / 4 + CONV_CTA - 1) / CONV_CTA),
                    (unsigned)((n + CONV_ROWS - 1) / CONV_ROWS));
    return launch(s, conv_many, grid, CONV_CTA, 0, *c, src, w, eps, n, dst, ld);
}

bool gem_cuda_delta_finish_fits(const gem_recurrent *r)
{
    return r->head_dim == FINISH_DIM && r->n_v_heads <= FINISH_HEADS * WARPS;
}

cudaError_t gem_cuda_delta_finish_many(const gem_cuda_stream *s, const gem_recurrent *r,
                                       const gem_cuda_delta *d, int32_t n, int32_t n_padded,
                                       uint16_t *xh, float *scale)
{
    return launch(s, finish_many, dim3((unsigned)n_padded), FINISH_CTA, 0, (const float *)d->o,
                  d->ldo, d->z, d->norm, r->n_v_heads, d->eps, n, xh, scale);
}
