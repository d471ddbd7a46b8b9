#!/usr/bin/env python3
"""Write the broken GGUF files of tests/data/malformed, or check that they are what this script says.

  make_malformed.py FOLDER          write them
  make_malformed.py --check FOLDER  exit 1 when a file differs, is missing, or is one too many

Each file is a small valid container (control) with one thing wrong. What gem must answer stands
beside the files in expected.tsv.
"""
import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
T_F32, T_Q4_0 = 0, 2


def text(s):
    b = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(b)) + b


def kv(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def u32(v):
    return struct.pack("<I", v)


def array(elem, n, data=b""):
    return struct.pack("<IQ", elem, n) + data


def tensor(name, dims, kind=T_F32, offset=0, n_dims=None):
    return text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims) if n_dims is None else n_dims, *dims,
                                    kind, offset)


ARCH = kv("general.architecture", STR, text("gemma3"))
T = tensor("t.weight", [4, 2])


def file(kvs=(ARCH,), tensors=(T,), data=32, version=3, n_kv=None, n_tensors=None, magic=b"GGUF", align=32):
    out = magic + struct.pack("<IQQ", version, len(tensors) if n_tensors is None else n_tensors,
                              len(kvs) if n_kv is None else n_kv)
    out += b"".join(kvs) + b"".join(tensors)
    out += bytes(-len(out) % align)
    return out + bytes(range(256)) * (data // 256) + bytes(range(data % 256))


def aligned(kind, value):
    return file([ARCH, kv("general.alignment", kind, value)])


control = file()
assert len(control) == 160

FILES = {
    "empty": b"",
    "header_cut": control[:23],
    "magic_zip": b"PK\3\4" + control[4:],
    "magic_lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 253113024\n",
    "magic_html": b"<!doctype html>\n<title>404 Not Found</title>\n",
    "magic_big_endian": b"FUGG" + control[4:],
    "version_0": file(version=0),
    "version_1": file(version=1),
    "version_4": file(version=4),
    "version_big_endian": file(version=0x03000000),
    "n_kv_absurd": file(n_kv=2**62),
    "n_kv_one_more": file(n_kv=2),
    "n_tensors_absurd": file(n_tensors=2**62),
    "n_tensors_one_more": file(n_tensors=2),
    "key_empty": file([kv("", U8, b"\1"), ARCH]),
    "key_zero_byte": file([kv("a\0b", U8, b"\1"), ARCH]),
    "key_length_absurd": file([struct.pack("<Q", 2**64 - 8), ARCH]),
    "key_twice": file([ARCH, ARCH]),
    "key_kind_unknown": file([ARCH, kv("x.kind", 13, bytes(8))]),
    "key_control_bytes": file([ARCH, kv("x.\x1b[2J\x07\n", 99, bytes(8))]),
    "bool_two": file([ARCH, kv("x.flag", BOOL, b"\2")]),
    "string_length_absurd": file([ARCH, kv("general.name", STR, struct.pack("<Q", 2**64 - 1))]),
    "string_cut": control[:67],
    "array_u8_absurd": file([ARCH, kv("x.bytes", ARR, array(U8, 2**60))]),
    "array_u64_wraps": file([ARCH, kv("x.words", ARR, array(U64, 2**61))]),
    "array_string_absurd": file([ARCH, kv("tokenizer.ggml.tokens", ARR, array(STR, 2**40))]),
    "array_string_cut": file([ARCH, kv("tokenizer.ggml.tokens", ARR, array(STR, 2, text("one") + b"\xff" * 8))]),
    "array_elem_unknown": file([ARCH, kv("x.elem", ARR, array(77, 0))]),
    "array_bool_two": file([ARCH, kv("x.flags", ARR, array(BOOL, 2, b"\1\2"))]),
    "array_nested": file([ARCH, kv("x.nested", ARR, array(ARR, 1, array(U8, 1, b"\1")))]),
    "array_nested_10000": file([ARCH, kv("x.deep", ARR, array(ARR, 1) * 10000 + array(U8, 0))]),
    "alignment_0": aligned(U32, u32(0)),
    "alignment_3": aligned(U32, u32(3)),
    "alignment_2147483648": aligned(U32, u32(2147483648)),
    "alignment_i32": aligned(I32, u32(32)),
    "alignment_string": aligned(STR, text("32")),
    "tensor_name_empty": file(tensors=[tensor("", [4, 2])]),
    "tensor_name_64": file(tensors=[tensor("n" * 64, [4, 2])]),
    "tensor_twice": file(tensors=[T, tensor("t.weight", [4, 2], offset=32)], data=64),
    "tensor_dims_0": file(tensors=[tensor("t.weight", [])]),
    "tensor_dims_5": file(tensors=[tensor("t.weight", [4, 2, 1, 1, 1])]),
    "tensor_dim_0_is_0": file(tensors=[tensor("t.weight", [0])]),
    "tensor_dim_1_is_0": file(tensors=[tensor("t.weight", [4, 0])]),
    "tensor_size_wraps": file(tensors=[tensor("t.weight", [2**62, 8])]),
    "tensor_size_huge": file(tensors=[tensor("t.weight", [2**20, 2**20])]),
    "tensor_type_unknown": file(tensors=[tensor("t.weight", [4, 2], kind=99)]),
    "tensor_type_removed": file(tensors=[tensor("t.weight", [32, 2], kind=4)]),
    "tensor_row_no_block": file(tensors=[tensor("t.weight", [48, 2], kind=T_Q4_0)], data=64),
    "tensor_misaligned": file(tensors=[tensor("t.weight", [4, 2], offset=8)], data=64),
    "tensor_offset_wraps": file(tensors=[tensor("t.weight", [4, 2], offset=2**64 - 32)]),
    "tensor_offset_2_40": file(tensors=[tensor("t.weight", [4, 2], offset=2**40)]),
    "tensor_overlap": file(tensors=[T, tensor("u.weight", [4, 2], offset=0)], data=64),
    "tensor_overlap_part": file(tensors=[tensor("u.weight", [4, 2], offset=32), tensor("v.weight", [4, 3])], data=64),
    "tensor_entry_cut": file(data=0)[:100],
    "data_cut_by_one": control[:-1],
    "data_missing": file(data=0),
    "split_without_name": file([ARCH, kv("split.no", U16, b"\0\0"), kv("split.count", U16, b"\3\0")]),
    "split_second_part": file([kv("split.no", U16, b"\1\0"), kv("split.count", U16, b"\2\0")]),
    "split_count_negative": file([ARCH, kv("split.count", I32, b"\xff" * 4)]),
    "split_count_string": file([ARCH, kv("split.count", STR, text("2"))]),
}


def main():
    args = sys.argv[1:]
    check = args[:1] == ["--check"]
    folder = args[check] if len(args) == 1 + check else sys.exit(__doc__)
    wrong = []
    for name, data in FILES.items():
        path = os.path.join(folder, name + ".gguf")
        if not check:
            with open(path, "wb") as f:
                f.write(data)
        elif not os.path.exists(path) or open(path, "rb").read() != data:
            wrong.append(name)
    wrong += [f for f in sorted(os.listdir(folder)) if f.endswith(".gguf") and f[:-5] not in FILES]
    for name in wrong:
        print("not as %s makes it: %s" % (os.path.basename(__file__), name), file=sys.stderr)
    print("%d files %s" % (len(FILES), "checked" if check else "written"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
