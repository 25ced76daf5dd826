#!/usr/bin/env python3
"""Passes of talf and of llama.cpp over models of one shape, in turn.

usage: llamacpp.py TALF LLAMA_BENCH GGUF_PY [--shape 110m] [--dtype f32,bf16,q8] [--rows 1,8,16,64]
                   [--context 256] [--prompt 512] [--reps 8] [--rounds 3] [--threads 2] [--dir DIR]

LLAMA_BENCH is llama.cpp's llama-bench, GGUF_PY its folder gguf-py. Both programs
get random weights of one shape, those that lab decode calls 110m and 1b: what a
pass costs does not depend on them. Further types are q4_0 and q4_k: both programs read the
file that llama-quantize, which lies beside llama-bench, makes of random weights, the first with all
matrices in Q4_0, the second by the rule Q4_K_M; talf keeps them as q4 and rounds activations to
8 bits, as llama.cpp does. llama-bench's pass of n tokens computes the logits of the last one,
talf's those of all n. Each figure is the best of all passes.
"""
import argparse
import json
import os
import subprocess
import sys

# vocabulary, hidden, layers, heads, heads of keys, inner size of the MLP
SHAPES = {"110m": (32000, 768, 12, 12, 12, 2048), "1b": (128256, 2048, 16, 32, 8, 8192)}
QUANTIZE = {"q4_0": ["--pure"], "q4_k": []}


def quantize(llama_bench, path, shape, dtype):
    """Makes path of random weights by llama-quantize."""
    source = os.path.join(os.path.dirname(path), f"{shape}-bf16.gguf")
    if not os.path.exists(source):
        write(source, shape, "bf16")
    subprocess.run([os.path.join(os.path.dirname(llama_bench), "llama-quantize"), *QUANTIZE[dtype], source, path + ".part",
                    {"q4_0": "Q4_0", "q4_k": "Q4_K_M"}[dtype]], check=True, capture_output=True)
    os.rename(path + ".part", path)


def write(path, shape, dtype):
    import gguf
    import numpy as np

    V, H, L, A, KV, F = SHAPES[shape]
    kind = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "q8": gguf.GGMLQuantizationType.Q8_0}[dtype]
    rng = np.random.default_rng(1)
    pool = (rng.standard_normal(1 << 22) * 0.02).astype(np.float32)  # drawing all would take long
    w = gguf.GGUFWriter(path + ".part", "llama", use_temp_file=True)
    w.add_context_length(4096)
    w.add_embedding_length(H)
    w.add_block_count(L)
    w.add_feed_forward_length(F)
    w.add_head_count(A)
    w.add_head_count_kv(KV)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(H // A)
    w.add_vocab_size(V)
    w.add_tokenizer_model("llama")
    pieces = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{i:02X}>".encode() for i in range(256)]
    pieces += [f"t{i}".encode() for i in range(V - len(pieces))]
    w.add_token_list(pieces)
    w.add_token_scores([-float(i) for i in range(V)])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (V - 259))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)

    def matrix(name, rows, cols):
        x = np.resize(np.roll(pool, rng.integers(len(pool))), (rows, cols))
        if dtype == "f32":
            w.add_tensor(name, x)
        else:
            w.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)

    def norm(name):
        w.add_tensor(name, np.ones(H, np.float32))

    matrix("token_embd.weight", V, H)
    norm("output_norm.weight")
    for i in range(L):
        b = f"blk.{i}."
        norm(b + "attn_norm.weight")
        norm(b + "ffn_norm.weight")
        for n, rows in (("attn_q", H), ("attn_k", H // A * KV), ("attn_v", H // A * KV), ("attn_output", H)):
            matrix(b + n + ".weight", rows, H)
        matrix(b + "ffn_gate.weight", F, H)
        matrix(b + "ffn_up.weight", F, H)
        matrix(b + "ffn_down.weight", H, F)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.rename(path + ".part", path)


def main():
    p = argparse.ArgumentParser()
    for name in ("lab", "llama_bench", "gguf_py"):
        p.add_argument(name)
    p.add_argument("--shape", default="110m", choices=SHAPES)
    p.add_argument("--dtype", default="f32,bf16,q8")
    p.add_argument("--rows", default="1,8,16,64")
    p.add_argument("--context", default="256")
    p.add_argument("--prompt", default="512")
    p.add_argument("--reps", default="8")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", default="2")
    p.add_argument("--dir", default=".")
    o = p.parse_args()
    sys.path.insert(0, o.gguf_py)
    best = {}

    def note(who, dtype, what, ms):
        key = (who, dtype, what)
        best[key] = min(ms, best.get(key, ms))

    rows = o.rows.split(",")
    for dtype in o.dtype.split(","):
        path = os.path.join(o.dir, f"{o.shape}-{dtype}.gguf")
        if not os.path.exists(path):
            if dtype in QUANTIZE:
                quantize(o.llama_bench, path, o.shape, dtype)
            else:
                write(path, o.shape, dtype)
        weights = ["--model", path, "--dtype", "q4", "--act-bits", "8"] if dtype in QUANTIZE else ["--shape", o.shape, "--dtype", dtype]
        for _ in range(o.rounds):
            out = subprocess.run([o.lab, "decode", *weights, "--rows", o.rows, "--context", o.context,
                                  "--prompt", o.prompt, "--reps", o.reps, "--threads", o.threads, "--json"], check=True, capture_output=True, text=True)
            for r in json.loads(out.stdout)["passes"]:
                note("talf", dtype, "prompt" if r.get("prompt") else str(r["rows"]), r["best_ms"])
                note("talf, of read", dtype, "prompt" if r.get("prompt") else str(r["rows"]),
                     -r["weight_bytes"] / (r["best_ms"] / 1e3) / r["read_best"])
            for what, flags in ([(n, ["-p", n, "-d", o.context]) for n in rows] + [("prompt", ["-p", o.prompt, "-d", "0"])]):
                out = subprocess.run([o.llama_bench, "-m", path, "-n", "0", "-t", o.threads, "-r", o.reps, "-o", "json", *flags],
                                     check=True, capture_output=True, text=True)
                for r in json.loads(out.stdout):
                    for ns in r["samples_ns"]:
                        note("llama.cpp", dtype, what, ns / 1e6)
    print("| weights | rows | talf, ms | over one | of read | llama.cpp, ms | over one | llama.cpp / talf |")
    print("|---|---|---|---|---|---|---|---|")
    for dtype in o.dtype.split(","):
        for what in rows + ["prompt"]:
            a, b = best["talf", dtype, what], best["llama.cpp", dtype, what]
            first = [best[w, dtype, rows[0]] for w in ("talf", "llama.cpp")]
            over = ["–", "–"] if what == "prompt" else [f"{a / first[0]:.2f}", f"{b / first[1]:.2f}"]
            name = f"prompt of {o.prompt}" if what == "prompt" else what
            print(f"| {dtype} | {name} | {a:.2f} | {over[0]} | {-best['talf, of read', dtype, what]:.0%} | {b:.2f} | {over[1]} | {b / a:.2f} |")


if __name__ == "__main__":
    main()
