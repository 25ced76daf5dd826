#!/usr/bin/env python3
"""How much of what a draft head saves reaches the clock, by the depth of the target.

usage: depth.py TALF MODEL HEAD PROMPTS [--template T] [--layers 12,24,48,148]
                [--dtype f32,q8] [--method salf:N=8,B=4,th=0.3] [--limit 21] [--repeat 5] [--out FILE]

For each depth and type of weights it runs `talf bench --parts`, which runs every
pass of decoding again, the target's and the head's each alone, within a second of
the text that they decoded and at the same contexts, and prints where the time of a
round goes, in microseconds. Of the repetitions, every pass counts with the shortest
time that it took; of methods whose trees follow the clock they are means. "Of that"
is the speed-up over the one that the passes alone allow, tau / (cost of the target's
passes + cost of the head's passes), costs over plain decoding's passes alone: what it
lacks of 1 is lost outside the two models.
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
    p.add_argument("--repeat", default="5")
    p.add_argument("--threads", default="2")
    p.add_argument("--out")
    o = p.parse_args()
    methods = o.method or ["salf:N=8,B=4,th=0.3"]
    table = []
    for layers in o.layers.split(","):
        for dtype in o.dtype.split(","):
            args = ["bench", "--model", o.model, "--head", o.head, "--prompts", o.prompts, "--limit", o.limit,
                    "--max-tokens", o.max_tokens, "--temperature", "0", "--layers", layers, "--dtype", dtype,
                    "--threads", o.threads, "--repeat", o.repeat, "--parts"]
            for m in methods:
                args += ["--method", m]
            if o.template:
                args += ["--template", o.template]
            rows = talf(o.talf, *args)["rows"]
            for r in rows:
                x = r["parts"]
                one = x["plain_alone_seconds"]
                table.append({
                    "layers": int(layers), "dtype": dtype, "method": r["method"], "tau": r["tau_pooled"], "parts": x,
                    "cost": x["target_alone_seconds"] / one, "head": x["draft_alone_seconds"] / one,
                    "head_share": x["draft_alone_seconds"] / max(x["draft_passes"], 1e-9) / one,
                    "clock": r["speedup"], "equal": r["equal_outputs"], "outputs": r["outputs"],
                })
                print(json.dumps(table[-1]), flush=True)
    print("\n| layers | weights | method | rows | τ | target, µs a round | alone | head | alone | other "
          "| cost over one | head over one | speed-up | allowed by the passes | of that | by the clock |")
    print("|" + "---|" * 16)
    for t in table:
        x = t["parts"]
        print(f"| {t['layers']} | {t['dtype']} | `{t['method']}` | {x['rows']:.1f} | {t['tau']:.2f}", end="")
        for k in ("target", "target_alone", "draft", "draft_alone", "other"):
            print(f" | {1e6 * x[k + '_seconds']:.0f}", end="")
        print(f" | {t['cost']:.2f} | {t['head']:.2f} | {x['speedup']:.2f} | {x['allowed']:.2f} | {x['of_allowed']:.2f} "
              f"| {t['clock']['mean']:.2f} |")
    if o.out:
        with open(o.out, "w") as f:
            json.dump(table, f, indent=1)


if __name__ == "__main__":
    main()
