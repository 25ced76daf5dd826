"""What talf drafts, read from its traces: what the scripts beside this one compare with."""

import json
import os
import subprocess
import sys

TOTAL, K, DEPTH = 60, 10, 5  # of both; EAGLE's total counts the root, as talf's N does


def talf(o, *args):
    said = subprocess.run([o.talf, *args], capture_output=True, text=True)
    if said.returncode:
        sys.exit(said.stderr)


def talf_rounds(o, head, prompt, tmp):
    """Rounds as [position of the root, tokens, parents, accepted path, the target's next token]."""
    trace = os.path.join(tmp, "trace.jsonl")
    talf(o, "generate", "--model", o.model, "--head", head, "--method", f"beam:N={TOTAL},k={K},depth={DEPTH}", "--prompt", prompt,
         "--max-tokens", str(o.tokens + 2 * DEPTH), "--trace", trace, "--threads", "1")
    out = []
    for line in open(trace).read().splitlines()[1:]:
        s = json.loads(line)
        out.append([s["pos"], [n["token"] for n in s["nodes"]], [n["parent"] for n in s["nodes"]], s["path"], s["next"]["token"]])
    return out


def paths(tokens, parents):
    out = []
    for n, t in enumerate(tokens):
        out.append((out[parents[n]] if n else ()) + (t,))
    return out
