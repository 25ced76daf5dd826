#!/usr/bin/env python3
"""Times a whole process that loads a model, reads a prompt and writes one token, of talf and of llama.cpp in turn.

    firsttoken.py TALF LLAMA_COMPLETION MODEL.gguf … [--rounds 7] [--threads 2]

The file is read once before, so that its pages are in the page cache. Seconds are medians over the rounds, with the
least and the most; the ratio is the median of the rounds' ratios. Processor seconds are those of all threads, medians
too; threads that wait for others may spin.
"""
import argparse
import os
import statistics
import subprocess
import time

PROMPT = "The capital of France is"


def seconds(command):
    began = time.perf_counter()
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(p.pid, 0)
    took = time.perf_counter() - began
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        raise subprocess.CalledProcessError(p.returncode, command)
    return took, used.ru_utime + used.ru_stime


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
    print("| model | talf, s | llama.cpp, s | talf / llama.cpp | processor, talf / llama.cpp, s |\n|---|---|---|---|---|")
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
        ours, theirs = ([t[i][0] for t in times] for i in (0, 1))
        ratio = statistics.median(x / y for x, y in zip(ours, theirs))
        used = " / ".join(f"{statistics.median(t[i][1] for t in times):.3f}" for i in (0, 1))
        print(f"| {model.rsplit('/', 1)[-1]} | {figures(ours)} | {figures(theirs)} | {ratio:.2f} | {used} |", flush=True)


if __name__ == "__main__":
    main()
