#!/usr/bin/env python3
"""Pools `talf bench --log` files of several training seeds: the τ of every method and
head with 95% intervals, and the differences between heads.

    pool.py LOG... [--resamples N]

Each log is of heads that were trained with one seed; the prompts are the same in all. An
answer's τ is its tokens over its passes. Intervals are of the bootstrap over prompts, each
drawn with its answers of all logs, and those of differences pair the answers by prompt and
log.
"""

import argparse
import json
import random
from collections import defaultdict


def read(path):
    """(method, temperature) → {(set, prompt, decoding seed, repeat): τ}"""
    out = defaultdict(dict)
    with open(path, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            try:
                d = json.loads(line)
            except json.JSONDecodeError as e:
                raise SystemExit(f"{path}:{n}: want a line of a log that talf bench wrote: {e}")
            if "method" not in d:
                continue  # the head line
            s = d["stats"]
            if s["Passes"]:
                out[d["method"], d["temperature"]][d["set"], d["prompt"], d["seed"], d["repeat"]] = s["Tokens"] / s["Passes"]
    return out


def interval(by_prompt, draws):
    """mean of all values, and 95% of the means over resampled prompts"""

    def mean(lists):
        return sum(map(sum, lists)) / sum(map(len, lists))

    means = sorted(mean([by_prompt[i] for i in d]) for d in draws)
    return mean(by_prompt), means[int(0.025 * len(means))], means[int(0.975 * len(means))]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("logs", nargs="+", metavar="LOG")
    ap.add_argument("--resamples", type=int, default=2000)
    args = ap.parse_args()

    logs = [read(p) for p in args.logs]
    rows = {k for log in logs for k in log}
    for path, log in zip(args.logs, logs):
        if missing := rows - log.keys():
            raise SystemExit(f"{path}: lacks {sorted(missing)[0]}, which another log has")
    answers = set.intersection(*(set(log[k]) for log in logs for k in rows))
    prompts = sorted({a[:2] for a in answers})
    if not prompts:
        raise SystemExit("the logs have no prompt in common")
    rng = random.Random(0)
    draws = [[rng.randrange(len(prompts)) for _ in prompts] for _ in range(args.resamples)]
    of = {p: [a for a in sorted(answers) if a[:2] == p] for p in prompts}

    def show(name, value):
        by_prompt = [[value(log, a) for log in logs for a in of[p]] for p in prompts]
        print("| %s | %s |" % (name, "%.2f [%.2f, %.2f]" % interval(by_prompt, draws)))

    print(f"{len(prompts)} prompts, {len(logs)} logs\n\n| method | τ |\n|---|---|")
    for k in sorted(rows):
        show(f"{k[0]}, T={k[1]:g}", lambda log, a: log[k][a])
    heads = defaultdict(list)
    for m, t in sorted(rows):
        method, _, head = m.partition(" ")
        if head:
            heads[method, t].append(head)
    print("\n| difference | τ |\n|---|---|")
    for (m, t), hs in sorted(heads.items()):
        for i, x in enumerate(hs):
            for y in hs[:i]:
                show(f"{m}, T={t:g}: {x} − {y}", lambda log, a: log[f"{m} {x}", t][a] - log[f"{m} {y}", t][a])


if __name__ == "__main__":
    main()
