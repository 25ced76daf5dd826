#!/usr/bin/env python3
"""Passes of talf and of llama.cpp over the same files, in turn.

    llamapasses.py LAB LLAMA_BENCH MODEL.gguf … [--rows 1,4,16] [--prompts 512,4096] [--act-bits 8] [--context 256]
                   [--rounds 5] [--reps 3] [--threads 2] [--class avx2] [--peer-args='-rtr 1'] [--no-depth]

LAB is the program of lab/cmd/lab. A round runs each program once for a file: passes of so many rows after the context,
then prompts from an empty cache. What a program says of a round is the median of its repetitions. Milliseconds are
medians over the rounds, with the least and the most; ratios are medians of the rounds' ratios, with theirs. talf keeps
integers as the file has them and rounds activations to --act-bits; its passes compute the logits of all rows,
llama-bench's those of the last. --class lowers talf's class of kernels; for llama.cpp, build with -DGGML_NATIVE=OFF and
the instructions of that class. The llama-bench of ik_llama.cpp knows no -d: with --no-depth its passes follow nothing,
which is quicker. --peer-args are more arguments of llama-bench's.
"""
import argparse
import json
import os
import statistics
import subprocess


def run(command, **env):
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | env).stdout)


def talf(o, model):
    times = {}
    for prompt in o.prompts or [0]:
        rows = ",".join(map(str, o.rows)) if prompt == (o.prompts or [0])[0] else "1"
        for r in run([o.lab, "decode", model, "--dtype", "q4", "--act-bits", o.act_bits, "--rows", rows, "--context", o.context,
                      "--prompt", str(prompt), "--reps", o.reps, "--threads", o.threads, "--json", "--quiet"],
                     **({"TALF_CLASS": o.kernels} if o.kernels else {}))["passes"]:
            times.setdefault((r.get("prompt", False), r["rows"]), r["median_ms"])
    return times


def llama(o, model):
    times = {}
    for prompt, sizes, depth in ((False, o.rows, o.context), (True, o.prompts, "0")):
        for n in sizes:
            after = [] if o.no_depth else ["-d", depth]
            out = run([o.llama_bench, "-m", model, "-n", "0", "-p", str(n), *after, "-t", o.threads, "-r", o.reps, "-o", "json",
                       *o.peer_args.split()])
            times[prompt, n] = statistics.median(out[0]["samples_ns"]) / 1e6
    return times


def figures(xs, digits=2):
    return f"{statistics.median(xs):.{digits}f} [{min(xs):.{digits}f}, {max(xs):.{digits}f}]"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("lab")
    p.add_argument("llama_bench")
    p.add_argument("models", nargs="+")
    sizes = lambda s: [int(n) for n in s.split(",") if n]
    p.add_argument("--rows", type=sizes, default="1,4,16")
    p.add_argument("--prompts", type=sizes, default="512,4096")
    for name, default in (("act-bits", "8"), ("context", "256"), ("reps", "3"), ("threads", "2")):
        p.add_argument("--" + name, default=default)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--class", dest="kernels", default="")
    p.add_argument("--peer-args", default="")
    p.add_argument("--no-depth", action="store_true")
    o = p.parse_args()
    print("| model | rows | talf, ms | over one | llama.cpp, ms | over one | llama.cpp / talf |\n|---|---|---|---|---|---|---|")
    for model in o.models:
        rounds = [(talf(o, model), llama(o, model)) for _ in range(o.rounds)]
        for key in [(False, n) for n in o.rows] + [(True, n) for n in o.prompts]:
            ours, theirs = ([r[i][key] for r in rounds] for i in range(2))
            one = (False, o.rows[0])
            over = ["–" if key[0] else f"{statistics.median(r[i][key] / r[i][one] for r in rounds):.2f}" for i in range(2)]
            name = f"prompt of {key[1]}" if key[0] else key[1]
            print(f"| {model.rsplit('/', 1)[-1]} | {name} | {figures(ours)} | {over[0]} | {figures(theirs)} | {over[1]} "
                  f"| {figures([b / a for a, b in zip(ours, theirs)])} |", flush=True)


if __name__ == "__main__":
    main()
