#!/usr/bin/env python3
"""Passes of talf and of llama.cpp over models of one shape, in turn.

usage: llamacpp.py TALF LLAMA_BENCH GGUF_PY [--dtype f32,bf16,q8] [--rows 1,8,16,64]
                   [--context 256] [--prompt 512] [--rounds 3] [--threads 2] [--dir DIR]

LLAMA_BENCH is llama.cpp's llama-bench, GGUF_PY its folder gguf-py. Both programs
get random weights of a 110M Llama (hidden 768, 12 layers, 12 heads, vocabulary
32000, tied): what a pass costs does not depend on them. llama-bench's pass of n
tokens computes the logits of the last one, talf's those of all n.
"""
import argparse
import json
import os
import subprocess
import sys

V, H, L, A, F = 32000, 768, 12, 12, 2048


def write(path, dtype):
    import gguf
    import numpy as np

    kind = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16, "q8": gguf.GGMLQuantizationType.Q8_0}[dtype]
    rng = np.random.default_rng(1)
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(4096)
    w.add_embedding_length(H)
    w.add_block_count(L)
    w.add_feed_forward_length(F)
    w.add_head_count(A)
    w.add_head_count_kv(A)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(H // A)
    w.add_vocab_size(V)
    w.add_tokenizer_model("llama")
    pieces = [b"<unk>", b"<s>", b"</s>"] + [f"<0x{i:02X}>".encode() for i in range(256)]
    pieces += [f"t{i}".encode() for i in range(V - len(pieces))]
    w.add_token_list(pieces)
    w.add_token_scores([0.0] * V)
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (V - 259))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)

    def matrix(name, rows, cols):
        x = (rng.standard_normal((rows, cols)) * 0.02).astype(np.float32)
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
        for n in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(b + n + ".weight", H, H)
        matrix(b + "ffn_gate.weight", F, H)
        matrix(b + "ffn_up.weight", F, H)
        matrix(b + "ffn_down.weight", H, F)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    p = argparse.ArgumentParser()
    for name in ("talf", "llama_bench", "gguf_py"):
        p.add_argument(name)
    p.add_argument("--dtype", default="f32,bf16,q8")
    p.add_argument("--rows", default="1,8,16,64")
    p.add_argument("--context", default="256")
    p.add_argument("--prompt", default="512")
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
        path = os.path.join(o.dir, dtype + ".gguf")
        if not os.path.exists(path):
            write(path, dtype)
        for _ in range(o.rounds):
            out = subprocess.run([o.talf, "bench", "decode", "--shape", "110m", "--dtype", dtype, "--rows", o.rows, "--context", o.context,
                                  "--prompt", o.prompt, "--reps", "8", "--threads", o.threads, "--json"], check=True, capture_output=True, text=True)
            for r in json.loads(out.stdout)["passes"]:
                note("talf", dtype, "prompt" if r.get("prompt") else str(r["rows"]), r["best_ms"])
                note("talf, of read", dtype, "prompt" if r.get("prompt") else str(r["rows"]),
                     -r["weight_bytes"] / (r["best_ms"] / 1e3) / r["read_best"])
            for what, flags in ([(n, ["-p", n, "-d", o.context]) for n in rows] + [("prompt", ["-p", o.prompt, "-d", "0"])]):
                out = subprocess.run([o.llama_bench, "-m", path, "-n", "0", "-t", o.threads, "-r", "8", "-o", "json", *flags],
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
