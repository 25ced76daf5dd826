#!/usr/bin/env python3
"""What whole requests take from servers of OpenAI's API, side by side: talf's with and without a head, llama.cpp's.

usage: servers.py SET=FILE... --server 'NAME=COMMAND with {port}'... [--base NAME] [--tokens 96] [--temperature 0]
                  [--limit N] [--repeat 1] [--out FILE]

All servers run at once, and one is asked at a time: prompt by prompt, in turn, each the first turn of a line of FILE
("turns") as a message of a user. The first prompt of each set warms up. A server's time of a prompt is the median of
its repetitions, from the request to the whole answer, by its tokens. Figures are ratios of totals to those of the base
(the first server), with 95% intervals of a bootstrap over prompts. Servers should keep no prompts, and those that
remember answers make a second repetition worthless.
"""
import argparse
import json
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

p = argparse.ArgumentParser(usage=__doc__)
p.add_argument("sets", nargs="+")
p.add_argument("--server", action="append", required=True)
p.add_argument("--base")
p.add_argument("--tokens", type=int, default=96)
p.add_argument("--temperature", type=float, default=0)
p.add_argument("--limit", type=int, default=0)
p.add_argument("--repeat", type=int, default=1)
p.add_argument("--out")
a = p.parse_args()


def free():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def post(port, path, body, timeout=600):
    r = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=timeout) as f:
        return json.load(f)


def ask(port, text):
    """Returns the seconds of a request and the tokens of its answer."""
    begun = time.perf_counter()
    r = post(port, "/v1/chat/completions", {
        "model": "any", "messages": [{"role": "user", "content": text}], "max_tokens": a.tokens,
        "temperature": a.temperature, "seed": 1})
    return time.perf_counter() - begun, r["usage"]["completion_tokens"]


prompts = []
for s in a.sets:
    name, file = s.split("=", 1)
    lines = [json.loads(line) for line in open(file)]
    prompts += [(name, i, x["turns"][0]) for i, x in enumerate(lines[:a.limit or None])]
servers, ports, logs = {}, {}, tempfile.TemporaryDirectory()
try:
    for s in a.server:
        name, command = s.split("=", 1)
        ports[name] = free()
        servers[name] = subprocess.Popen(shlex.split(command.replace("{port}", str(ports[name]))),
                                         stdout=open(os.path.join(logs.name, str(len(servers))), "w"), stderr=subprocess.STDOUT)
    for name, port in ports.items():
        for _ in range(600):
            try:
                ask(port, "Hello")
                break
            except OSError:
                if servers[name].poll() is not None:
                    sys.exit(f"{name} ended: {open(os.path.join(logs.name, str(list(ports).index(name)))).read()[-800:]}")
                time.sleep(0.2)
    took = {name: {} for name in ports}  # seconds a token, by prompt
    for _ in range(a.repeat):
        for set_, i, text in prompts:
            for name, port in ports.items():
                seconds, tokens = ask(port, text)
                if i > 0 and tokens > 0:
                    took[name].setdefault((set_, i), []).append((seconds / tokens, tokens))
finally:
    for x in servers.values():
        x.terminate()
    for x in servers.values():
        x.wait()
if a.out:
    json.dump({n: {f"{s} {i}": v for (s, i), v in t.items()} for n, t in took.items()}, open(a.out, "w"))
times = {n: {k: statistics.median(x for x, _ in v) for k, v in t.items()} for n, t in took.items()}
base = a.base or next(iter(times))


def ratio(name, keys):
    """Returns how many times as fast as the base a server is, with an interval over prompts."""
    of = lambda ks: sum(times[base][k] for k in ks) / sum(times[name][k] for k in ks)
    r = random.Random(1)
    boot = sorted(of([r.choice(keys) for _ in keys]) for _ in range(2000))
    return f"{of(keys):.2f} [{boot[49]:.2f}, {boot[1949]:.2f}]"


sets = list(dict.fromkeys(s for s, _, _ in prompts))
print("| server | tokens/s | all |", " | ".join(sets), "|")
print("|---|---|---|" + "---|" * len(sets))
for name, t in times.items():
    keys = sorted(k for k in t if all(k in x for x in times.values()))
    rows = [ratio(name, keys)] + [ratio(name, [k for k in keys if k[0] == s]) for s in sets]
    print(f"| {name} | {len(keys) / sum(t[k] for k in keys):.1f} |", " | ".join(rows), "|")
