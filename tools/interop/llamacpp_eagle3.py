#!/usr/bin/env python3
"""Chains of an EAGLE-3 head in llama.cpp's server and in talf: what is accepted of them.

    llamacpp_eagle3.py TALF LLAMA_SERVER MODEL MODEL.gguf HEAD.gguf PROMPTS [--depth 4] [--tokens 64] [--count 10]

MODEL.gguf is the model directory MODEL in F32 (lab/experiments/llama_gguf.py), HEAD.gguf what `talf export
--format gguf` wrote. Both programs continue the prompts greedily, draft chains of --depth tokens, and have one
thread. llama.cpp drafts from the first token of an answer on, talf before it, so talf is given that token with the
prompt. Then the answers should be equal, and so should the drafted tokens and those that are accepted, up to
sums of floats in another order. A round is a pass over a draft.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request


def ask(port, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=600) as r:
        return json.load(r)


def llama(o, prompts):
    """Yields the first token's text, the whole text, and the numbers of tokens, drafted and accepted ones of each prompt."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = os.environ | {"LD_LIBRARY_PATH": os.path.dirname(o.server)}
    args = ["--model", o.gguf, "--model-draft", o.head, "--spec-type", "draft-eagle3", "--spec-draft-n-max", str(o.depth),
            "--ctx-size", "2048", "--parallel", "1", "--threads", "1", "--port", str(port), "--no-webui"]
    server = subprocess.Popen([o.server, *args], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                if ask(port, "/health")["status"] == "ok":
                    break
            except OSError:
                if server.poll() is not None:
                    sys.exit("the server ended: it may not know the head")
            time.sleep(0.2)
        for p in prompts:
            body = {"prompt": p, "temperature": 0, "cache_prompt": False}
            first = ask(port, "/completion", body | {"n_predict": 1})["content"]
            r = ask(port, "/completion", body | {"n_predict": o.tokens})
            t = r["timings"]
            yield first, r["content"], r["tokens_predicted"] - 1, t.get("draft_n", 0), t.get("draft_n_accepted", 0)
    finally:
        server.terminate()
        server.wait()


def talf(o, method, *more):
    with tempfile.TemporaryDirectory() as d:
        asked, out = os.path.join(d, "in.jsonl"), os.path.join(d, "out.jsonl")
        with open(asked, "w", encoding="utf-8") as f:
            f.writelines(json.dumps({"text": p}) + "\n" for p in o.asked)
        subprocess.run([o.talf, "generate", "--model", o.model, "--method", method, "--prompts", asked, "--out", out, "--threads", "1",
                        "--batch", "1", "--stats", "--max-tokens", str(o.tokens - 1), *more], check=True, capture_output=True)
        with open(out, encoding="utf-8") as f:
            return sorted((json.loads(line) for line in f), key=lambda a: a["index"])


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    for name in ("talf", "server", "model", "gguf", "head", "prompts"):
        p.add_argument(name)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--tokens", type=int, default=64)
    p.add_argument("--count", type=int, default=10)
    o = p.parse_args()
    with open(o.prompts, encoding="utf-8") as f:
        o.asked = [json.loads(line)["text"] for line in f][:o.count]
    theirs = list(llama(o, o.asked))
    o.asked = [p + first for p, (first, *_) in zip(o.asked, theirs)]
    ours, plain = talf(o, f"linear:K={o.depth}", "--head", o.head), talf(o, "ar")
    sums = {"llama.cpp": [0, 0, 0], "talf": [0, 0, 0]}
    same = alike = 0
    for a, b, (first, text, tokens, drafted, accepted) in zip(ours, plain, theirs):
        s = a["stats"]
        if a["text"] != b["text"]:
            sys.exit(f"talf's answer {a['index']} is not that of plain decoding")
        mine = (s["passes"], s["drafted_tokens"], s["tokens"] - s["passes"])
        its = (tokens - accepted, drafted, accepted)  # a round adds a token of the target's own
        equal = text == first + a["text"]
        same += equal
        alike += equal and mine == its
        print(f"{a['index']:3}  {'the same text' if equal else 'ANOTHER TEXT':13}  rounds, drafted, accepted: llama.cpp {its}, talf {mine}")
        if equal:
            for name, x in (("llama.cpp", its), ("talf", mine)):
                sums[name] = [u + v for u, v in zip(sums[name], x)]
    print(f"{same} of {len(o.asked)} texts are the same, {alike} of them with equal numbers; over these texts:")
    for name, (rounds, drafted, accepted) in sums.items():
        print(f"{name:9}  {accepted} accepted of {drafted} drafted in {rounds} rounds: {1 + accepted / max(rounds, 1):.3f} tokens a round")


if __name__ == "__main__":
    main()
