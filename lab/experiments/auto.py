#!/usr/bin/env python3
"""What `auto` leaves to the best method, on real models, by one program or by two in turn.

usage: auto.py TALF MODEL SET=FILE... [--draft DRAFT] [--before TALF] [--repeat 3] [--tokens 96] [--temperature 0,1]
               [--limit N] [--methods pld,suffix,goose:N=8] [--threads 2]

Both programs decode every prompt with plain decoding and with `auto`; the newer one with every method, too. They
take turns repetition by repetition, and methods prompt by prompt. A prompt's time is the median of its repetitions,
and figures are ratios of totals, in decoding, with 95% intervals of a bootstrap over prompts that takes both sides from the same ones:
of plain decoding (`ar`), of the better of plain decoding and the one method that is best over all prompts, and the
regret: of the method that is best on each prompt, chosen by the other repetitions.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile

p = argparse.ArgumentParser(usage=__doc__)
p.add_argument("talf")
p.add_argument("model")
p.add_argument("sets", nargs="+")
p.add_argument("--draft")
p.add_argument("--before")
p.add_argument("--repeat", type=int, default=3)
p.add_argument("--tokens", type=int, default=96)
p.add_argument("--temperature", default="0,1")
p.add_argument("--limit", type=int, default=0)
p.add_argument("--methods", default="pld,suffix,goose:N=8")
p.add_argument("--threads", type=int, default=0)
a = p.parse_args()


def run(talf, methods, log, repeat):
    """Runs one more repetition, which the log adds to those before."""
    args = [talf, "bench", a.model, "--max-tokens", str(a.tokens), "--temperature", a.temperature, "--threads", str(a.threads),
            "--repeat", str(repeat), "--limit", str(a.limit), "--log", log, "--json", "-q", "--method", "ar"]
    for s in a.sets:
        args += ["--prompts", s]
    for m in methods:
        args += ["--method", m]
    if a.draft:
        args += ["--draft", "lm=" + a.draft]
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)


def read(log):
    """Returns the seconds of decoding by temperature, method, prompt and repetition."""
    out = {}
    for line in open(log):
        x = json.loads(line)
        x = x.get("measurement", x)
        if "stats" not in x:
            continue
        s = x["stats"]
        seconds, tokens = s["Decode"] / 1e9, s["Tokens"]
        out.setdefault(x["temperature"], {}).setdefault(x["method"].removesuffix(" lm"), {}).setdefault((x["set"], x["prompt"]), []).append(seconds / tokens)
    return out


def ratio(over, under):
    """Totals of over by those of under, by prompt, and a 95% interval over prompts."""
    keys = sorted(set(over) & set(under))
    of = lambda ks: sum(over[k] for k in ks) / sum(under[k] for k in ks)
    r = random.Random(1)
    boot = sorted(of([r.choice(keys) for _ in keys]) for _ in range(2000))
    return f"{of(keys):.3f} [{boot[49]:.3f}, {boot[1949]:.3f}]"


def median(times):
    return {k: statistics.median(v) for k, v in times.items()}


methods = ["auto"] + a.methods.split(",")
if a.draft:
    methods += ["salf", "static:chain-3", "static:chain-1"]
with tempfile.TemporaryDirectory() as tmp:
    logs = [("now", a.talf, methods)] + ([("before", a.before, ["auto"])] if a.before else [])
    for repeat in range(1, a.repeat + 1):
        for name, talf, ms in logs:
            run(talf, ms, os.path.join(tmp, name), repeat)
    print("| program | T | `auto` over plain | over the better of plain and the best method | which | slowest prompt | regret: of each prompt's best |")
    print("|---|---|---|---|---|---|---|")
    now = read(os.path.join(tmp, "now"))
    for name, _, _ in logs:
        got = read(os.path.join(tmp, name))
        for t in sorted(got):
            plain, auto = median(got[t]["ar"]), median(got[t]["auto"])
            singles = {m: v for m, v in now[t].items() if m != "auto"}
            if name == "before":  # its machine's speed is that of its own plain decoding
                scale = sum(plain.values()) / sum(median(now[t]["ar"]).values())
                singles = {m: {k: [x * scale for x in v] for k, v in y.items()} for m, y in singles.items()}
            best = min(singles, key=lambda m: sum(median(singles[m]).values()))
            regret = {}
            for k in auto:
                # The choice is by the other repetitions, so that luck does not choose.
                n = len(singles["ar"][k])
                picks = []
                for i in range(n):
                    rest = lambda v: statistics.median([x for j, x in enumerate(v) if j != i] or v)
                    picks.append(singles[min(singles, key=lambda m: rest(singles[m][k]))][k][i])
                regret[k] = statistics.median(picks)
            slow = min(plain[k] / auto[k] for k in auto)
            print(f"| {name} | {t} | {ratio(plain, auto)} | {ratio(median(singles[best]), auto)} | `{best}` | {slow:.2f} | {ratio(regret, auto)} |")
