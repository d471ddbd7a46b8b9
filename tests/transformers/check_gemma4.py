#!/usr/bin/env python3
"""Logits of a small gemma4 model against the transformers implementation (Gemma4ForCausalLM), in F32.

  check_gemma4.py BIN_DIR [TOKENS]      BIN_DIR holds gem and gem-synth-model; TOKENS: how many, default 600

The model comes from gem-synth-model: 16 query heads on 4 and on 1 KV heads, no v_proj in layers that see all, a
window of 256. Its tensors are given to transformers under that library's names; nothing is added or permuted. The
rotary factors are not handed over: transformers makes its own from "proportional, a quarter", so the file's are
checked by the way. Every logit of every position must be within 0.001, equal argmax where the best two are further
apart. Needs PyTorch, transformers, gguf and numpy. Exit: 0 equal, 1 not, 77 skipped (with the reason).
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

BOUND = 0.001
try:
    import gguf
    import numpy as np
    import torch
    from transformers import Gemma4ForCausalLM, Gemma4TextConfig
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

NAMES = {  # of a layer: the file's and the library's
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def read(path):
    reader = gguf.GGUFReader(path)
    keys = {}
    for name, field in reader.fields.items():
        if name.startswith("gemma4."):
            keys[name[len("gemma4."):]] = field.contents()
    tensors = {t.name: np.array(t.data, dtype=np.float32).reshape(tuple(int(d) for d in reversed(t.shape)))
               for t in reader.tensors}
    return keys, tensors


def config_of(k, n_vocab):
    sliding = [bool(x) for x in k["attention.sliding_window_pattern"]]
    heads = [int(x) for x in k["attention.head_count_kv"]]
    return Gemma4TextConfig(
        vocab_size=n_vocab, hidden_size=k["embedding_length"], intermediate_size=k["feed_forward_length"],
        num_hidden_layers=k["block_count"], num_attention_heads=k["attention.head_count"],
        num_key_value_heads=heads[0], num_global_key_value_heads=heads[-1], head_dim=k["attention.key_length_swa"],
        global_head_dim=k["attention.key_length"], rms_norm_eps=k["attention.layer_norm_rms_epsilon"],
        layer_types=["sliding_attention" if s else "full_attention" for s in sliding],
        sliding_window=k["attention.sliding_window"], final_logit_softcapping=k["final_logit_softcapping"],
        max_position_embeddings=k["context_length"], attention_k_eq_v=True, hidden_size_per_layer_input=0,
        num_kv_shared_layers=0, tie_word_embeddings=True,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": k["rope.freq_base_swa"]},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                               "rope_theta": k["rope.freq_base"]}})


def reference(path, tokens):
    k, t = read(path)
    config = config_of(k, t["token_embd.weight"].shape[0])
    config._attn_implementation = "eager"
    state = {"model.embed_tokens.weight": t["token_embd.weight"], "lm_head.weight": t["token_embd.weight"],
             "model.norm.weight": t["output_norm.weight"]}
    for n in range(k["block_count"]):
        for ours, theirs in NAMES.items():
            if f"blk.{n}.{ours}.weight" in t:
                state[f"model.layers.{n}.{theirs}.weight"] = t[f"blk.{n}.{ours}.weight"]
        state[f"model.layers.{n}.layer_scalar"] = t[f"blk.{n}.layer_output_scale.weight"]
    torch.manual_seed(0)
    model = Gemma4ForCausalLM(config).float().eval()
    model.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in state.items()}, strict=True)
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    bin_dir, n = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 600
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        subprocess.run([bin_dir / "gem-synth-model", "--preset", "gemma4-tiny", "--quant", "f32", "--quiet", "--out",
                        path / "m.gguf"], check=True, stdout=subprocess.DEVNULL)
        tokens = [2] + [(i * i + 7 * i) % 900 for i in range(1, n)]
        (path / "ids").write_text(" ".join(map(str, tokens)))
        subprocess.run([bin_dir / "gem", "logits", path / "m.gguf", "--tokens", path / "ids", "--positions", "all",
                        "--exact", "--out", path / "out.f32"], check=True, stdout=subprocess.DEVNULL)
        got = np.fromfile(path / "out.f32", "<f4").reshape(n, -1)
        want = reference(str(path / "m.gguf"), tokens)
    worst = float(np.abs(got - want).max())
    best = np.sort(want, axis=1)
    clear = best[:, -1] - best[:, -2] > BOUND
    differs = int(((got.argmax(1) != want.argmax(1)) & clear).sum())
    print(json.dumps({"positions": n, "n_vocab": got.shape[1], "largest_difference": worst, "argmax_differs": differs,
                      "logit_spread": float(want.std()), "bound": BOUND}))
    sys.exit(0 if math.isfinite(worst) and worst <= BOUND and differs == 0 else 1)


main()
