"""Times Hugging Face tokenizers, sugarme/tokenizer and talf on the same texts, in
turn: see tokenizers.sh, which runs it.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import tokenizers


class HuggingFace:
    """The library's fastest calls: batches, without offsets."""

    def __init__(self, file):
        self.t = tokenizers.Tokenizer.from_file(file)

    def first(self, op, items):
        self.op, self.items = op, items
        return self.again(True)

    def again(self, keep=False):
        if self.op == "encode":
            start = time.perf_counter()
            out = self.t.encode_batch_fast(self.items, add_special_tokens=False)
            seconds = time.perf_counter() - start
            return seconds, [e.ids for e in out] if keep else None
        start = time.perf_counter()
        out = self.t.decode_batch(self.items, skip_special_tokens=False)
        return time.perf_counter() - start, out

    def close(self):
        pass


class Server:
    """A tokbench process."""

    def __init__(self, bench, kind, file):
        self.p = subprocess.Popen([bench, kind, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1 << 20)
        self.answer()

    def answer(self):
        line = self.p.stdout.readline()
        a = json.loads(line) if line else {"error": "it ended"}
        if "error" in a:
            raise RuntimeError(a["error"])
        return a

    def ask(self, r):
        self.p.stdin.write(json.dumps(r) + "\n")
        self.p.stdin.flush()
        return self.answer()

    def first(self, op, items):
        a = self.ask({"op": op, "texts" if op == "encode" else "ids": items})
        return a["seconds"], a.get("ids", a.get("texts"))

    def again(self):
        return self.ask({"op": "again"})["seconds"], None

    def close(self):
        self.p.stdin.close()
        self.p.wait()


def cell(speeds):
    return f"{statistics.median(speeds):.2f} ({min(speeds):.2f}–{max(speeds):.2f})"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("bench")
    ap.add_argument("text")
    ap.add_argument("files", nargs="+", help="tokenizer.json files; a row is named after the folder")
    ap.add_argument("--rounds", type=int, default=9)
    ap.add_argument("--sugarme-bytes", type=int, default=20_000, help="sugarme gets the first so many bytes, as lines, once")
    a = ap.parse_args()
    text = Path(a.text).read_bytes().decode()
    print(f"tokenizers {tokenizers.__version__}, Python {sys.version.split()[0]}, {len(text.encode())} bytes, {a.rounds} rounds in turn; MB/s: median (least–most)\n")
    print("| tokenizer | work | Hugging Face | sugarme | talf | talf / HF |\n|---|---|---|---|---|---|")
    for file in a.files:
        name = Path(file).parent.name
        for unit in ("whole", "lines"):
            texts = [text] if unit == "whole" else text.splitlines(keepends=True)
            size = sum(len(t.encode()) for t in texts) / 1e6
            hf, own = HuggingFace(file), Server(a.bench, "talf", file)
            for op in ("encode", "decode"):
                items = texts if op == "encode" else ids
                # The first pass warms up, and its results must agree.
                want, got = hf.first(op, items)[1], own.first(op, items)[1]
                if want != got:
                    sys.exit(f"{name}: {op} {unit}: talf and Hugging Face disagree")
                if op == "encode":
                    # Without special tokens, which versions of the library decode differently.
                    special = {i for i, t in hf.t.get_added_tokens_decoder().items() if t.special}
                    ids = [[i for i in x if i not in special] for x in want]
                times = {hf: [], own: []}
                for _ in range(a.rounds):
                    for side in times:
                        times[side].append(size / side.again()[0])
                row = [cell(times[hf]), sugarme(a, file, op, items, want, texts) if unit == "lines" else "", cell(times[own])]
                ratio = statistics.median(times[own]) / statistics.median(times[hf])
                print(f"| {name} | {op} {unit} | {' | '.join(row)} | {ratio:.1f} |", flush=True)
            hf.close()
            own.close()


def sugarme(a, file, op, items, want, texts):
    n, size = 0, 0
    while n < len(texts) and size < a.sugarme_bytes:
        size += len(texts[n].encode())
        n += 1
    try:
        s = Server(a.bench, "sugarme", file)
        seconds, out = s.first(op, items[:n])
        s.close()
    except RuntimeError as e:
        return "fails: " + str(e)[:40].replace("|", "\\|")
    right = sum(x == y for x, y in zip(out, want))
    return f"{size / 1e6 / seconds:.2f}, {right} of {n} right"


main()
