"""Times Hugging Face tokenizers, sugarme/tokenizer and talf on the same texts, in
turn: see tokenizers.sh, which runs it. Times are processor time.
"""
import argparse
import json
import random
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
            start = time.process_time()
            out = self.t.encode_batch_fast(self.items, add_special_tokens=False)
            seconds = time.process_time() - start
            return seconds, [e.ids for e in out] if keep else None
        start = time.process_time()
        out = self.t.decode_batch(self.items, skip_special_tokens=False)
        return time.process_time() - start, out

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


def interleaved(rounds, sizes):
    """MB/s of each side's last request, repeated in turn. sizes: side to bytes."""
    speeds = {side: [] for side in sizes}
    for _ in range(rounds):
        for side, size in sizes.items():
            speeds[side].append(size / 1e6 / side.again()[0])
    return speeds


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
        speed(a, file, text)
    print("\nA line of 1 MB without spaces; growth: its time over that of a tenth of it\n")
    print("| tokenizer | line | Hugging Face, MB/s | growth | talf, MB/s | growth |\n|---|---|---|---|---|---|")
    letters = random.Random(1)
    lines = {
        "random letters": "".join(letters.choices("etaoinshrdlu", k=1_000_000)),
        "text": ("".join(c for c in text if c.isascii() and c not in " \n") * 2)[:1_000_000],
        "one letter": "a" * 1_000_000,
    }
    for file in a.files:
        for kind, line in lines.items():
            growth(a, file, kind, line)


def speed(a, file, text):
    name = Path(file).parent.name
    for unit in ("whole", "lines"):
        texts = [text] if unit == "whole" else text.splitlines(keepends=True)
        size = sum(len(t.encode()) for t in texts)
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
            got = interleaved(a.rounds, {hf: size, own: size})
            row = [cell(got[hf]), sugarme(a, file, op, items, want, texts) if unit == "lines" else "", cell(got[own])]
            ratio = statistics.median(got[own]) / statistics.median(got[hf])
            print(f"| {name} | {op} {unit} | {' | '.join(row)} | {ratio:.1f} |", flush=True)
        hf.close()
        own.close()


def growth(a, file, kind, line):
    """Times a line and, as texts of their own, its tenths."""
    tenths = [line[i:i + len(line) // 10] for i in range(0, len(line), len(line) // 10)]
    row = []
    for make in (lambda: HuggingFace(file), lambda: Server(a.bench, "talf", file)):
        whole, parts = make(), make()
        whole.first("encode", [line])
        parts.first("encode", tenths)
        got = interleaved(min(a.rounds, 3), {whole: len(line), parts: len(line)})
        w, p = statistics.median(got[whole]), statistics.median(got[parts])
        row += [f"{w:.2f}", f"{10 * p / w:.1f}"]
        whole.close()
        parts.close()
    print(f"| {Path(file).parent.name} | {kind} | {' | '.join(row)} |", flush=True)


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
        print(f"{file}: sugarme: {e}", file=sys.stderr)
        return "fails"
    right = sum(x == y for x, y in zip(out, want))
    return f"{size / 1e6 / seconds:.2f}, {right} of {n} right"


main()
