#!/usr/bin/env python3
"""Compares talf's GGUF file of an EAGLE-3 head with that of llama.cpp's converter.

    pip install torch numpy transformers sentencepiece pyyaml requests tqdm
    eagle3_gguf.py LLAMA_CPP TALF HEAD TARGET NEW [--dtype f32] [--pre NAME] [--golden FILE]

LLAMA_CPP is a copy of llama.cpp, whose convert_hf_to_gguf.py runs as it is, on what `talf export
--format speculators` writes of HEAD into the directory NEW. It knows tokenizers by what they make of a text, and
none that is not listed: NAME is what it then takes for tokenizer.ggml.pre. Keys and tensors have to
be the same byte by byte, but for those that tell people about the file, and the factors of Llama 3's
rotary frequencies, which may differ by 1e-5. With --golden, hashes of the converter's are written, for the test
of model/gguf/write, whose head `go test ./model/gguf/write -run Converters -head PATH` writes.
"""
import argparse
import hashlib
import json
import os
import subprocess
import sys

FREQS = "rope_freqs.weight"
PEOPLE = {"general.name", "general.size_label", "general.tags", "general.base_model.count"}


def convert(llama, pre, args):
    """Runs the converter in a process of its own, since it has arguments and modules of its own."""
    code = f"""
import runpy, sys
sys.path[:0] = [{llama!r}, {llama + "/gguf-py"!r}]
import conversion.base as base
if {pre!r}:
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: {pre!r}
sys.argv = ["convert"] + {args!r}
runpy.run_path({llama + "/convert_hf_to_gguf.py"!r}, run_name="__main__")
"""
    subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL)


def digest(b):
    return hashlib.sha256(bytes(b)).hexdigest()[:16]


def describe(path):
    import gguf

    r = gguf.GGUFReader(path)
    keys, tensors, freqs = {}, {}, []
    for name, f in r.fields.items():
        if name.startswith("GGUF.") or name.startswith("talf."):
            continue
        # The parts are: length of the name, name, type, then the value.
        value = b"".join(bytes(p) for p in f.parts[3:])
        keys[name] = chr(ord("a") + int(f.types[0])) + " " + digest(value)
    for t in r.tensors:
        if t.name == FREQS:
            freqs = [float(x) for x in t.data]
            continue
        dims = "x".join(f"{int(d):08x}" for d in t.shape)
        tensors[t.name] = f"{t.tensor_type.name} {dims} {digest(t.data)}"
    return {"keys": keys, "tensors": tensors, "rope_freqs": freqs}


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    for name in ("llama", "talf", "head", "target", "new"):
        p.add_argument(name)
    p.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    p.add_argument("--pre")
    p.add_argument("--golden")
    o = p.parse_args()
    sys.path.insert(0, o.llama + "/gguf-py")
    os.makedirs(o.new)
    export = [o.talf, "export", "--head", o.head, "--model", o.target, "--dtype", o.dtype]
    spec, oracle, ours = (os.path.join(o.new, x) for x in ("speculators", "converter.gguf", "talf"))
    subprocess.run(export + ["--format", "speculators", "--out", spec], check=True)
    convert(o.llama, o.pre, [spec, "--target-model-dir", o.target, "--outfile", oracle, "--outtype", o.dtype])
    subprocess.run(export + ["--format", "gguf", "--out", ours], check=True)
    want, got = describe(oracle), describe(os.path.join(ours, f"eagle3-{o.dtype.upper()}.gguf"))
    bad = 0
    for what in ("keys", "tensors"):
        for name in sorted((want[what].keys() | got[what].keys()) - PEOPLE):
            a, b = want[what].get(name), got[what].get(name)
            if a != b:
                bad += 1
                print(f"{what} {name}: the converter has {a}, talf {b}")
    if len(want["rope_freqs"]) != len(got["rope_freqs"]) or any(
            abs(a / b - 1) > 1e-5 for a, b in zip(want["rope_freqs"], got["rope_freqs"])):
        bad += 1
        print(f"{FREQS}: the converter has {want['rope_freqs']}, talf {got['rope_freqs']}")
    print(f"{len(want['keys'])} keys, {len(want['tensors'])} tensors and {len(want['rope_freqs'])} factors: {bad} differ")
    if o.golden:
        with open(o.golden, "w", encoding="utf-8") as f:
            json.dump(want, f, indent=1, sort_keys=True)
            f.write("\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
