#!/usr/bin/env python3
"""Write one golden of logits (stdout, JSON) from two dumps of another engine. Needs numpy.

  make_golden.py MODEL.gguf TEXT.txt IDS REFERENCE.f32 N_VOCAB [QUANTISED.f32] > FAMILY-TEXT.json

IDS are the token ids of TEXT, parted by blanks. REFERENCE.f32 holds one row of N_VOCAB little-endian floats
a token: an F32 run on the weights of MODEL.gguf expanded exactly to F32 (MADE_WITH says how the committed
files were made). QUANTISED.f32 are the same rows of that engine's own fast run on MODEL.gguf itself
(QUANTISED_WITH); the figures of that run are what gem's fast path is held against. Commands:
docs/accuracy.md; what the test asks of these files: tests/unit/test_golden_logits.c.
"""
import hashlib
import json
import math
import pathlib
import sys

import numpy as np

MADE_WITH = (
    "llama.cpp commit 0c1e57098b (ggml 0.25.3), x86-64 with AVX2, on the exact F32 expansion of the model file; "
    "all positions in batches of 128, 1 thread, KV cache F32, no flash attention; two changes to its sources: "
    "exact tanh GELU in single precision instead of a half-precision table, and every rotary angle computed "
    "in double instead of by a running single-precision product"
)
QUANTISED_WITH = (
    "llama.cpp commit 0c1e57098b (ggml 0.25.3), unchanged, on the model file itself; batches of 512, 2 threads, "
    "KV cache F16, flash attention on"
)
N_TOP, N_FIXED, LAST_STRIDE = 8, 16, 61
MIN_REST = 1e-6  # of the mass outside the top, so that rounding decides nothing


def rows(path, n, n_vocab):
    size = pathlib.Path(path).stat().st_size
    if size != 4 * n * n_vocab:
        sys.exit(f"{path}: {size} bytes, {n} rows of {n_vocab} floats are wanted")
    return np.memmap(path, "<f4", "r", shape=(n, n_vocab))


def log_sum_exp(x):
    return float(x.max() + np.log(np.exp(x - x.max()).sum()))


def kl_top(p, q):
    """KL of two distributions over the top tokens and one class for all others: a lower bound of the full KL."""
    p, q = list(p), list(q)
    p.append(max(1 - sum(p), MIN_REST))
    q.append(max(1 - sum(q), MIN_REST))
    return sum(a * math.log(a / b) for a, b in zip(p, q))


def quantised_figures(path, ref, tops, lses):
    n, n_vocab = ref.shape
    got = rows(path, n, n_vocab)
    full = coarse = 0.0
    differs = 0
    for i in range(n):
        r, x = ref[i].astype(np.float64), got[i].astype(np.float64)
        lse = log_sum_exp(x)
        p = np.exp(r - lses[i])
        full += float(p @ (r - lses[i] - x + lse))
        coarse += kl_top(p[tops[i]], np.exp(x[tops[i]] - lse))
        differs += int(x.argmax() != r.argmax())
    return {
        "made_with": QUANTISED_WITH,
        "mean_kl": float(f"{full / n:.6g}"),
        "mean_kl_top": float(f"{coarse / n:.6g}"),
        "argmax_differs": differs,
        "last_correlation": float(f"{np.corrcoef(r, x)[0, 1]:.6g}"),
        "last_nmse": float(f"{((x - r) ** 2).sum() / (r**2).sum():.6g}"),
    }


def main():
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    model, text, ids_path, ref_path, n_vocab = sys.argv[1:5] + [int(sys.argv[5])]
    ids = [int(x) for x in pathlib.Path(ids_path).read_text().split()]
    ref = rows(ref_path, len(ids), n_vocab)
    fixed = [k * n_vocab // N_FIXED + n_vocab // (2 * N_FIXED) for k in range(N_FIXED)]
    tops, lses, lines = [], [], []
    for row in ref:
        assert np.isfinite(row).all()
        order = np.argpartition(-row, 2 * N_TOP)[: 2 * N_TOP]
        top = [int(k) for k in order[np.lexsort((order, -row[order]))][:N_TOP]]
        lse = log_sum_exp(row.astype(np.float64))
        tops.append(top)
        lses.append(lse)
        lines.append(
            "[[%s],[%s],%.9g,[%s]]"
            % (",".join(map(str, top)), ",".join(f"{row[k]:.9g}" for k in top), lse, ",".join(f"{row[k]:.6g}" for k in fixed))
        )
    with open(model, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    head = {
        "model": pathlib.Path(model).name,
        "model_sha256": digest,
        "text": pathlib.Path(text).name,
        "made_with": MADE_WITH,
        "n_vocab": n_vocab,
        "row_format": "[ids of the largest logits, best first; these logits; log of the sum of exp of all "
        "logits; logits of fixed_ids]",
        "fixed_ids": fixed,
        "last_stride": LAST_STRIDE,
        "last": [float(f"{x:.6g}") for x in ref[-1][::LAST_STRIDE]],
        "tokens": ids,
    }
    if len(sys.argv) > 6:
        head["quantised"] = quantised_figures(sys.argv[6], ref, tops, lses)
    out = "".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))},\n" for k, v in head.items())
    out = "{\n" + out + '"rows":[\n' + ",\n".join(lines) + "\n]}\n"
    json.loads(out)
    sys.stdout.write(out)


main()
