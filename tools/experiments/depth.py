#!/usr/bin/env python3
"""How much of what a draft head saves reaches the clock, by the depth of the target.

usage: depth.py TALF MODEL HEAD PROMPTS [--template T] [--layers 12,24,48,148]
                [--dtype f32,q8] [--method salf:N=8,B=4,th=0.3] [--limit 21] [--out FILE]

For each depth and type of weights it runs `talf bench` (speed-up, tau, time in the
head) and `talf bench decode` (what a pass of as many rows costs over one), and
prints the speed-up beside tau / (cost(n)/cost(1) + head time over a plain pass):
the quotient is what is left when the two models have taken their time.
"""
import argparse
import json
import subprocess


def talf(binary, *args):
    return json.loads(subprocess.run([binary, *args, "--json"], check=True, capture_output=True, text=True).stdout)


def main():
    p = argparse.ArgumentParser()
    for name in ("talf", "model", "head", "prompts"):
        p.add_argument(name)
    p.add_argument("--template", default="")
    p.add_argument("--layers", default="12,24,48,148")
    p.add_argument("--dtype", default="f32,q8")
    p.add_argument("--method", action="append")
    p.add_argument("--limit", default="21")
    p.add_argument("--max-tokens", default="96")
    p.add_argument("--reps", default="15")
    p.add_argument("--out")
    o = p.parse_args()
    methods = o.method or ["salf:N=8,B=4,th=0.3"]
    table = []
    for layers in o.layers.split(","):
        for dtype in o.dtype.split(","):
            args = ["bench", "--model", o.model, "--head", o.head, "--prompts", o.prompts, "--limit", o.limit,
                    "--max-tokens", o.max_tokens, "--temperature", "0", "--layers", layers, "--dtype", dtype]
            for m in methods:
                args += ["--method", m]
            if o.template:
                args += ["--template", o.template]
            rows = talf(o.talf, *args)["rows"]
            plain = rows[0]
            for r in rows[1:]:
                n = round(1 + r["drafted"] / r["passes"])
                d = talf(o.talf, "bench", "decode", "--model", o.model, "--layers", layers, "--dtype", dtype,
                         "--rows", f"1,{n}", "--context", "160", "--reps", o.reps)["passes"]
                tau, one, each = r["tau_pooled"], plain["tpot_seconds"]["mean"], r["tpot_seconds"]["mean"]
                head = r["draft_share"] * each * tau / one
                model = tau / (d[1]["ratio"] + head)
                table.append({
                    "layers": int(layers), "dtype": dtype, "method": r["method"], "rows": n, "tau": tau,
                    "cost": d[1]["ratio"], "head": head, "speedup": one / each, "model": model,
                    "of_model": one / each / model, "equal": r["equal_outputs"], "outputs": r["outputs"],
                    "plain_tokens_per_second": 1 / one, "tokens_per_second": 1 / each,
                })
                print(json.dumps(table[-1]), flush=True)
    print("\n| layers | weights | method | rows | τ | cost of a pass over one | head over a plain pass | speed-up | of τ / (cost + head) |")
    print("|---|---|---|---|---|---|---|---|---|")
    for t in table:
        print(f"| {t['layers']} | {t['dtype']} | `{t['method']}` | {t['rows']} | {t['tau']:.2f} | {t['cost']:.2f} | {t['head']:.2f} | {t['speedup']:.2f} | {t['of_model']:.2f} |")
    if o.out:
        with open(o.out, "w") as f:
            json.dump(table, f, indent=1)


if __name__ == "__main__":
    main()
