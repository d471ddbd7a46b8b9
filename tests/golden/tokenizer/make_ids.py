#!/usr/bin/env python3
"""Write the golden ids of one vocabulary: make_ids.py TOKIDS MODEL.gguf > NAME.ids

TOKIDS is a program of another engine that is called as `TOKIDS MODEL.gguf corpus.jsonl [--special]` and
prints the ids of each line, parted by blanks, no BOS added, without and with markers parsed. The committed
files were made with llama.cpp (libllama of commit 0c1e57098b, llama_tokenize) from these vocabularies:
  gemma3.ids  gemma-3-270m-q4_k_m.gguf
  qwen2.ids   qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
  qwen35.ids  the same file with tokenizer.ggml.pre = "qwen35"
  gemma4.ids  ggml-vocab-gemma-4.gguf of llama.cpp's sources

Line n of the output belongs to line n of corpus.jsonl: ids without markers, and behind a '|' those with
markers where they differ. Where gem decides otherwise, differs.jsonl says so and why.
"""
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def ids(program, model, *flags):
    out = subprocess.run([program, model, str(HERE / "corpus.jsonl"), *flags], check=True, capture_output=True, text=True)
    return [line.strip() for line in out.stdout.split("\n")[:-1]]


def main():
    plain = ids(sys.argv[1], sys.argv[2])
    marked = ids(sys.argv[1], sys.argv[2], "--special")
    for a, b in zip(plain, marked, strict=True):
        print(a if a == b else f"{a}|{b}")


main()
