#!/usr/bin/env python3
"""Times a whole process that loads a model, reads a prompt and writes one token, of talf and of llama.cpp in turn.

    firsttoken.py TALF LLAMA_COMPLETION MODEL.gguf … [--rounds 7] [--threads 2]

The file is read once before, so that its pages are in the page cache. Seconds are medians over the rounds, with the
least and the most; the ratio is the median of the rounds' ratios.
"""
import argparse
import statistics
import subprocess
import time

PROMPT = "The capital of France is"


def seconds(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def figures(xs):
    return f"{statistics.median(xs):.3f} [{min(xs):.3f}, {max(xs):.3f}]"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("talf")
    p.add_argument("llama")
    p.add_argument("models", nargs="+")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    print("| model | talf, s | llama.cpp, s | talf / llama.cpp |\n|---|---|---|---|")
    for model in a.models:
        with open(model, "rb") as f:
            while f.read(1 << 24):
                pass
        commands = [
            [a.talf, "generate", model, "--raw", "--prompt", PROMPT, "--max-tokens", "1", "--threads", str(a.threads), "--quiet"],
            [a.llama, "-m", model, "-p", PROMPT, "-n", "1", "-no-cnv", "--no-warmup", "--temp", "0", "-t", str(a.threads), "-c", "512"],
        ]
        for c in commands:
            seconds(c)
        times = [[seconds(c) for c in commands] for _ in range(a.rounds)]
        ours, theirs = zip(*times)
        print(f"| {model.rsplit('/', 1)[-1]} | {figures(ours)} | {figures(theirs)} | {statistics.median(x / y for x, y in times):.2f} |", flush=True)


if __name__ == "__main__":
    main()
