#!/usr/bin/env python3
"""Logits of a small qwen35 model against the transformers implementation (Qwen3_5ForCausalLM), in F32.

  check_qwen35.py BIN_DIR [TOKENS]      BIN_DIR holds gem and gem-synth-model; TOKENS: how many, default 400

The model comes from gem-synth-model with two value heads a key head, so that their order matters; its tensors
are given to transformers under that library's names: norms without the 1 that the file format adds, A_log
for ssm_a, value heads grouped by key head instead of tiled. Every logit of every position must be within 0.001,
equal argmax where the best two are further apart. Needs PyTorch, transformers, gguf and numpy.
Exit: 0 equal, 1 not, 77 skipped (with the reason).
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
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
except (ImportError, OSError) as error:  # OSError: a PyTorch whose libraries are not there
    print(f"skipped: {error}")
    sys.exit(77)


def read(path):
    reader = gguf.GGUFReader(path)
    keys = {}
    for name, field in reader.fields.items():
        if name.startswith("qwen35."):
            keys[name[len("qwen35."):]] = field.contents()
    tensors = {t.name: np.array(t.data, dtype=np.float32).reshape(tuple(int(d) for d in reversed(t.shape)))
               for t in reader.tensors}
    return keys, tensors


def config_of(k, n_vocab):
    period = k["full_attention_interval"]
    kinds = ["full_attention" if i % period == period - 1 else "linear_attention" for i in range(k["block_count"])]
    return Qwen3_5TextConfig(
        vocab_size=n_vocab, hidden_size=k["embedding_length"], intermediate_size=k["feed_forward_length"],
        num_hidden_layers=k["block_count"], num_attention_heads=k["attention.head_count"],
        num_key_value_heads=k["attention.head_count_kv"], head_dim=k["attention.key_length"],
        rms_norm_eps=k["attention.layer_norm_rms_epsilon"], layer_types=kinds, tie_word_embeddings=False,
        linear_conv_kernel_dim=k["ssm.conv_kernel"], linear_key_head_dim=k["ssm.state_size"],
        linear_value_head_dim=k["ssm.state_size"], linear_num_key_heads=k["ssm.group_count"],
        linear_num_value_heads=k["ssm.time_step_rank"],
        rope_parameters={
            "rope_type": "default", "rope_theta": k["rope.freq_base"], "mrope_interleaved": True,
            "mrope_section": [int(x) for x in k["rope.dimension_sections"][:3]],
            "partial_rotary_factor": k["rope.dimension_count"] / k["attention.key_length"]})


def grouped(x, k, axis, size):
    """Value heads of `size` rows along `axis`: tiled (head j*n_k + i reads key head i) to grouped (i*ratio + j)."""
    n_k, n_v = k["ssm.group_count"], k["ssm.time_step_rank"]
    order = [j * n_k + i for i in range(n_k) for j in range(n_v // n_k)]
    heads = np.split(x, n_v, axis=axis)
    assert heads[0].shape[axis] == size
    return np.concatenate([heads[h] for h in order], axis=axis)


def layer_state(t, k, n, recurrent):
    b, state = f"blk.{n}.", k["ssm.state_size"]
    keys = 2 * k["ssm.group_count"] * state

    def behind_keys(x):  # q and k rows stay, value rows are grouped
        return np.concatenate([x[:keys], grouped(x[keys:], k, 0, state)])

    out = {
        "input_layernorm.weight": t[b + "attn_norm.weight"] - 1,
        "post_attention_layernorm.weight": t[b + "post_attention_norm.weight"] - 1,
        "mlp.gate_proj.weight": t[b + "ffn_gate.weight"],
        "mlp.up_proj.weight": t[b + "ffn_up.weight"],
        "mlp.down_proj.weight": t[b + "ffn_down.weight"],
    }
    if recurrent:
        out |= {
            "linear_attn.in_proj_qkv.weight": behind_keys(t[b + "attn_qkv.weight"]),
            "linear_attn.in_proj_z.weight": grouped(t[b + "attn_gate.weight"], k, 0, state),
            "linear_attn.in_proj_b.weight": grouped(t[b + "ssm_beta.weight"], k, 0, 1),
            "linear_attn.in_proj_a.weight": grouped(t[b + "ssm_alpha.weight"], k, 0, 1),
            "linear_attn.conv1d.weight": behind_keys(t[b + "ssm_conv1d.weight"])[:, None, :],
            "linear_attn.dt_bias": grouped(t[b + "ssm_dt.bias"], k, 0, 1),
            "linear_attn.A_log": np.log(-grouped(t[b + "ssm_a"], k, 0, 1)),
            "linear_attn.norm.weight": t[b + "ssm_norm.weight"],
            "linear_attn.out_proj.weight": grouped(t[b + "ssm_out.weight"], k, 1, state),
        }
    else:
        out |= {
            "self_attn.q_proj.weight": t[b + "attn_q.weight"],
            "self_attn.k_proj.weight": t[b + "attn_k.weight"],
            "self_attn.v_proj.weight": t[b + "attn_v.weight"],
            "self_attn.o_proj.weight": t[b + "attn_output.weight"],
            "self_attn.q_norm.weight": t[b + "attn_q_norm.weight"] - 1,
            "self_attn.k_norm.weight": t[b + "attn_k_norm.weight"] - 1,
        }
    return {f"model.layers.{n}.{name}": x for name, x in out.items()}


def reference(path, tokens):
    k, t = read(path)
    config = config_of(k, t["token_embd.weight"].shape[0])
    config._attn_implementation = "eager"
    state = {"model.embed_tokens.weight": t["token_embd.weight"], "lm_head.weight": t["output.weight"],
             "model.norm.weight": t["output_norm.weight"] - 1}
    for n, kind in enumerate(config.layer_types):
        state |= layer_state(t, k, n, kind == "linear_attention")
    torch.manual_seed(0)
    model = Qwen3_5ForCausalLM(config).float().eval()
    model.load_state_dict({name: torch.from_numpy(np.ascontiguousarray(x)) for name, x in state.items()}, strict=True)
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].float().numpy()


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    bin_dir, n = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 400
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        subprocess.run([bin_dir / "gem-synth-model", "--preset", "qwen35-tiny", "--v-heads", "4", "--quant", "f32",
                        "--quiet", "--out", path / "m.gguf"], check=True, stdout=subprocess.DEVNULL)
        tokens = [(i * i + 7 * i) % 900 for i in range(n)]
        (path / "ids").write_text(" ".join(map(str, tokens)))
        subprocess.run([bin_dir / "gem", "logits", path / "m.gguf", "--tokens", path / "ids", "--positions", "all",
                        "--exact", "--out", path / "out.f32"], check=True, stdout=subprocess.DEVNULL)
        got = np.fromfile(path / "out.f32", "<f4").reshape(n, -1)
        want = reference(str(path / "m.gguf"), tokens)
    seen = np.isfinite(got)  # padding tokens are suppressed in gem
    worst = float(np.abs(np.where(seen, got - want, 0)).max())
    best = np.sort(np.where(seen, want, -math.inf), axis=1)
    clear = best[:, -1] - best[:, -2] > BOUND
    differs = int(((got.argmax(1) != np.where(seen, want, -math.inf).argmax(1)) & clear).sum())
    print(json.dumps({"positions": n, "n_vocab": got.shape[1], "largest_difference": worst, "argmax_differs": differs,
                      "logit_spread": float(want.std()), "bound": BOUND}))
    sys.exit(0 if worst <= BOUND and differs == 0 and seen.any() else 1)


main()
