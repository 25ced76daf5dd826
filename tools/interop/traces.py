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


def read_prompts(o):
    """The first o.prompts questions of a file, as texts to continue."""
    with open(o.prompts_file, encoding="utf-8") as f:
        return [f"Question: {json.loads(line)['turns'][0]}\nAnswer:" for line in f.read().splitlines()[: o.prompts]]


def chain_rounds(o, k, prompt, tmp):
    """Rounds with chains of k tokens as [position of the root, drafted tokens, their probabilities, accepted path, next token]."""
    trace = os.path.join(tmp, "trace.jsonl")
    talf(o, "generate", "--model", o.model, "--head", o.head, "--method", f"linear:K={k}", "--prompt", prompt, "--chat-template", "none",
         "--max-tokens", str(o.tokens + k), "--trace", trace, "--threads", "1")
    with open(trace, encoding="utf-8") as f:
        for line in f.read().splitlines()[1:]:
            s = json.loads(line)
            drafted = s["nodes"][1:]
            yield s["pos"], [n["token"] for n in drafted], [n["q"] for n in drafted], s["path"], s["next"]["token"]


def talf_rounds(o, head, prompt, tmp):
    """Rounds as [position of the root, tokens, parents, accepted path, the target's next token]."""
    trace = os.path.join(tmp, "trace.jsonl")
    talf(o, "generate", "--model", o.model, "--head", head, "--method", f"beam:N={TOTAL},k={K},depth={DEPTH}", "--prompt", prompt,
         "--chat-template", "none", "--max-tokens", str(o.tokens + 2 * DEPTH), "--trace", trace, "--threads", "1")
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
