#!/usr/bin/env python3
"""Write one golden of logits of a synthetic model (stdout, JSON). Needs numpy.

  make_golden.py MODEL.gguf "GEM-SYNTH-MODEL ARGUMENTS" IDS REFERENCE.f32 STEP [QUANTISED.f32] > PRESET-QUANT.json
  make_golden.py --ids N N_VOCAB FIRST > IDS

The model is remade by `gem-synth-model ARGUMENTS --out MODEL.gguf` wherever the test runs; its SHA-256 says that
it is the same. IDS are token ids parted by blanks; --ids makes them: 2 (<bos>), then a fixed pseudo-random run of
ids from FIRST on. REFERENCE.f32 and QUANTISED.f32 hold one row of n_vocab little-endian floats an id, made by
another engine as docs/accuracy.md says: an F32 run on the exact F32 twin (`--expand-f32`), and that engine's own
fast run on MODEL.gguf. Rows are kept at every STEP-th position, and all of them around multiples of 256 (windows,
pages, tiles, chunks); differences are checked against the whole dumps when the golden is made.
"""
import hashlib
import json
import math
import pathlib
import sys

import numpy as np

N_TOP, N_FIXED = 4, 4
MIN_REST = 1e-6  # of the mass outside the top, so that rounding decides nothing
MADE_WITH = (
    "llama.cpp commit 0c1e57098b (ggml 0.25.3), x86-64 with AVX2, on the exact F32 twin; all positions in batches "
    "of 128, 1 thread, KV cache F32, no flash attention; two changes to its sources: exact tanh GELU in single "
    "precision instead of a half-precision table, and every rotary angle computed in double"
)
QUANTISED_WITH = (
    "llama.cpp commit 0c1e57098b (ggml 0.25.3), unchanged, on the model file itself; batches of 512, 2 threads, "
    "KV cache F16, flash attention on"
)


def make_ids(n, n_vocab, first):
    ids, x = [2], 12345
    for _ in range(n - 1):
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        ids.append(first + (x >> 33) % (n_vocab - first))
    return ids


def log_sum_exp(x):
    return float(x.max() + np.log(np.exp(x - x.max()).sum()))


def kl_top(p, q):
    """KL of two distributions over the top tokens and one class for all others: a lower bound of the full KL."""
    p, q = list(p), list(q)
    p.append(max(1 - sum(p), MIN_REST))
    q.append(max(1 - sum(q), MIN_REST))
    return sum(a * math.log(a / b) for a, b in zip(p, q))


def rows_of(path, n):
    data = np.memmap(path, "<f4", "r")
    return data.reshape(n, -1)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == "--ids":
        print(*make_ids(*map(int, sys.argv[2:])))
        return
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    model, args, ids_path, ref_path, step = sys.argv[1:5] + [int(sys.argv[5])]
    ids = [int(x) for x in pathlib.Path(ids_path).read_text().split()]
    ref = rows_of(ref_path, len(ids))
    got = rows_of(sys.argv[6], len(ids)) if len(sys.argv) > 6 else None
    n_vocab = ref.shape[1]
    fixed = [k * n_vocab // N_FIXED + n_vocab // (2 * N_FIXED) for k in range(N_FIXED)]
    kept = [i for i in range(len(ids)) if i % step == 0 or (i + 3) % 256 < 6]
    lines, full, coarse, differs = [], 0.0, 0.0, 0
    for i in kept:
        row = ref[i].astype(np.float64)
        assert np.isfinite(row).all()
        order = np.lexsort((np.arange(n_vocab), -row))
        top, lse = [int(k) for k in order[:N_TOP]], log_sum_exp(row)
        lines.append("[[%s],[%s],%.8g,[%s]]" % (",".join(map(str, top)), ",".join(f"{row[k]:.7g}" for k in top), lse,
                                                ",".join(f"{row[k]:.6g}" for k in fixed)))
        if got is not None:
            x = got[i].astype(np.float64)
            lx, p = log_sum_exp(x), np.exp(row - lse)
            full += float(p @ (row - lse - x + lx))
            coarse += kl_top(p[top], np.exp(x[top] - lx))
            differs += int(x.argmax() != row.argmax())
    head = {
        "arguments": args,
        "model_sha256": hashlib.sha256(pathlib.Path(model).read_bytes()).hexdigest(),
        "made_with": MADE_WITH,
        "n_vocab": n_vocab,
        "row_format": "[ids of the largest logits, best first; these logits; log of the sum of exp of all logits; "
        "logits of fixed_ids]",
        "fixed_ids": fixed,
        "tokens": ids,
        "positions": kept,
    }
    if got is not None:
        head["quantised"] = {
            "made_with": QUANTISED_WITH,
            "mean_kl": float(f"{full / len(kept):.6g}"),
            "mean_kl_top": float(f"{coarse / len(kept):.6g}"),
            "argmax_differs": differs,
        }
    out = "".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))},\n" for k, v in head.items())
    out = "{\n" + out + '"rows":[\n' + ",\n".join(lines) + "\n]}\n"
    json.loads(out)
    sys.stdout.write(out)


main()
