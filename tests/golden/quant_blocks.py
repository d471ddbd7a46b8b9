#!/usr/bin/env python3
"""Print the golden table of tests/unit/test_quant.c with an independent implementation.

  pip install gguf==0.19.0 && python3 tests/golden/quant_blocks.py

Input of each type: three blocks (types with blocks of one: 96 elements) whose byte i is
(i * 37 + 11 + 97 * (i >> 8)) & 255, with the half-precision fields of block b set to
d = 0.0123 * (1 - 2 * (b & 1)) * (b + 1) and m (dmin) = 0.0456 * (b + 1).
Output: FNV-1a (64 bit) over the little-endian F32 values, and eight of them.
"""
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# where d and m stand in a block
FIELDS = {T.Q4_0: (0, None), T.Q4_1: (0, 2), T.Q5_0: (0, None), T.Q5_1: (0, 2), T.Q8_0: (0, None),
          T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208, None)}


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


for t in (T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K):
    length, size = GGML_QUANT_SIZES[t]
    blocks = 96 if length == 1 else 3
    i = np.arange(blocks * size)
    raw = ((i * 37 + 11 + 97 * (i >> 8)) & 255).astype(np.uint8)
    if t in FIELDS:
        rows = raw.reshape(blocks, size)
        for b in range(blocks):
            d, m = FIELDS[t]
            rows[b, d:d + 2] = np.array([0.0123 * (1 - 2 * (b & 1)) * (b + 1)], np.float16).view(np.uint8)
            if m is not None:
                rows[b, m:m + 2] = np.array([0.0456 * (b + 1)], np.float16).view(np.uint8)
    if t == T.F32:
        v = raw.view(np.float32)
    elif t == T.F16:
        v = raw.view(np.float16).astype(np.float32)
    else:
        v = dequantize(raw.reshape(1, -1), t).reshape(-1)
    at = [0, 1, 15, 16, 31, v.size // 2, v.size - 17, v.size - 1]
    print("    {GEM_DTYPE_%s, 0x%016Xu,\n     {%s}}," % (
        t.name, fnv1a(v.astype("<f4").tobytes()), ", ".join(float(v[k]).hex() + "f" for k in at)))
