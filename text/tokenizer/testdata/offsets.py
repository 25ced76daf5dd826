"""Writes offsets.json: for the texts of components.json and of the conformance
cases in a folder of tokenizers (data/tokenizers), the offsets that Hugging Face
tokenizers gives with special tokens, in bytes: start, end, start, end, …

    pip install tokenizers==0.23.3
    python offsets.py ../../../../shared/data/tokenizers
"""
import json
import sys
from pathlib import Path

import tokenizers
from tokenizers import Tokenizer

FAMILIES = ["gpt2", "gpt-neox", "llama2", "llama3-style", "phi3"]


def build(base, c):
    t = json.loads(json.dumps(base[c["base"]]))
    t.update(c["set"])
    m = dict(c["model"])
    drop = m.pop("drop", None)
    t["model"].update(m)
    if drop:
        del t["model"]["vocab"][drop]
    return Tokenizer.from_str(json.dumps(t))


def offsets(hf, text):
    at = [0]
    for ch in text:
        at.append(at[-1] + len(ch.encode()))
    return [at[i] for o in hf.encode(text).offsets for i in o]


comp = json.load(open("components.json"))
out = {"made_with": {"tokenizers": tokenizers.__version__, "python": sys.version.split()[0]}, "components": [], "families": {}}
for c in comp["configs"]:
    hf = build(comp["base"], c)
    out["components"].append([offsets(hf, k["text"]) for k in c["cases"]])
for f in FAMILIES:
    hf = Tokenizer.from_file(str(Path(sys.argv[1]) / f / "tokenizer.json"))
    lines = (Path(sys.argv[1]) / f / "cases.jsonl").read_text().split("\n")
    out["families"][f] = [offsets(hf, json.loads(line)["text"]) for line in lines if line]
json.dump(out, open("offsets.json", "w"), separators=(",", ":"))
