"""Writes components.json: small tokenizers that differ in one component, and what
Hugging Face tokenizers makes of random texts with them.

    pip install tokenizers==0.21.4
    python make.py

The two vocabularies are trained here on the sentences below.
"""
import json
import random
import sys

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

R = random.Random(16)
SENTENCES = [
    "Once upon a time there was a little mouse who lived near the river.",
    "The answer is 42, isn't it? They're sure it'll be 1234567.",
    "Hello, hello! What's the time? It's half past three, I've heard.",
    "Übung macht den Meister: façade, naïve, Ångström, Straße.",
    "  two  spaces,\ttabs\nand\r\nlines\n\n\n",
] * 20
PIECES = (list("abcdefghijABCstSTllvermd  \t\n\r'''0123456789.,!?-_<>|/#") + list(
    "éßſŉİıKäöü中文日本語😀👍🏽\u00a0\u3000\u200b\u200d\u0301\u0308\u0344\u0338\ufeff\u2028\u0085\u1e9b\u0323ﬁ½²Ⅳعربيहिन्दी"
    "가각힣\u0e33𝒳𐐀\u0130①Å\U0001357c") + ["'s", "'LL", "'ſ", "\r\n", "  ", "   ", "\n\n", "▁", "▁▁", "hello", "the ", "ing", " river"])


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(SENTENCES, trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), special_tokens=["<|end|>"], show_progress=False))
    return json.loads(t.to_str())


def sentence_piece():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator(SENTENCES, trainers.BpeTrainer(
        vocab_size=480, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], show_progress=False))
    d = json.loads(t.to_str())
    d["added_tokens"] = d["added_tokens"][:3]
    return d


BASE = {"byte": byte_level(), "sp": sentence_piece()}
CONFIGS = []


def add(name, base, model=None, **kw):
    CONFIGS.append({"name": name, "base": base, "model": model or {}, "set": kw})


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def bl(prefix, regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def pre(*x):
    return {"type": "Sequence", "pretokenizers": list(x)}


def norm(*x):
    return {"type": "Sequence", "normalizers": list(x)}


def dec(*x):
    return {"type": "Sequence", "decoders": list(x)}


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
O200K = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"

add("gpt2", "byte")
add("llama", "sp")
for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
    for invert in (False, True):
        add(f"regex-{behavior}-{invert}", "byte", pre_tokenizer=pre(split({"Regex": r"\p{N}| |'s"}, behavior, invert), bl(False, False)))
        add(f"string-{behavior}-{invert}", "byte", pre_tokenizer=pre(split({"String": "e"}, behavior, invert), bl(True, True)))
    add(f"scanner-{behavior}", "byte", pre_tokenizer=pre(split({"Regex": LLAMA3}, behavior, behavior == "Removed"), bl(False, False)))
for name, p in [("llama3", LLAMA3), ("qwen2", QWEN2), ("cl100k", CL100K), ("o200k", O200K)]:
    add(name, "byte", pre_tokenizer=pre(split({"Regex": p}, "Isolated"), bl(False, False)))
add("digits-individual", "byte", pre_tokenizer=pre({"type": "Digits", "individual_digits": True}, bl(False, True)))
add("digits-together", "byte", pre_tokenizer=pre({"type": "Digits", "individual_digits": False}, bl(True, True)))
for scheme in ("first", "always", "never"):
    for cut in (True, False):
        meta = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
        add(f"metaspace-{scheme}-{cut}", "sp", normalizer=None, pre_tokenizer=meta, decoder=meta)
for form in ("NFC", "NFKC", "NFD", "NFKD", "Lowercase"):
    add(f"{form}-byte", "byte", normalizer={"type": form})
    add(f"{form}-sp", "sp", normalizer=norm({"type": form}, BASE["sp"]["normalizer"]))
add("strip", "byte", normalizer={"type": "Strip", "strip_left": True, "strip_right": True})
add("strip-left", "byte", normalizer={"type": "Strip", "strip_left": True, "strip_right": False})
add("replace-regex", "byte", normalizer=norm({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}, {"type": "Lowercase"}))
add("unknown-apart", "sp", {"byte_fallback": False, "fuse_unk": False})
add("unknown-fused", "sp", {"byte_fallback": False})
add("unknown-vanishes", "sp", {"byte_fallback": False, "unk_token": None})
add("one-byte-missing", "sp", {"drop": "<0xF0>"})
add("ignore-merges", "sp", {"ignore_merges": True})
add("no-decoder", "byte", decoder=None)
add("no-decoder-sp", "sp", decoder=None)
add("strip-tokens", "sp", decoder=dec({"type": "Strip", "content": "▁", "start": 1, "stop": 1},
                                      {"type": "Replace", "pattern": {"Regex": "[aeiou]"}, "content": "_"}, {"type": "ByteFallback"}, {"type": "Fuse"}))
add("template", "byte", post_processor={
    "type": "Sequence", "processors": [bl(True, True), {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|end|>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"X": {"id": "X", "ids": [5, 6], "tokens": ["a", "b"]}, "<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}}]})
for base in BASE:
    vocab = BASE[base]["model"]["vocab"]
    for v in range(8):
        tokens = list(BASE[base]["added_tokens"])
        fresh = len(vocab)
        for c in ["ing", "the ", "'s", " hello", "ab", "abc", "é", "<x>", "中", "  "]:
            if c in vocab:
                i = vocab[c]
            else:
                i, fresh = fresh, fresh + 1
            flag = lambda p: R.random() < p
            tokens.append({"id": i, "content": c, "single_word": flag(.3), "lstrip": flag(.4), "rstrip": flag(.4), "normalized": flag(.5), "special": flag(.5)})
        kw = {"added_tokens": tokens}
        if v % 2:
            kw["normalizer"] = norm({"type": "Lowercase"}, {"type": "NFC"})
        add(f"added-{base}-{v}", base, **kw)


def build(c):
    t = json.loads(json.dumps(BASE[c["base"]]))
    t.update(c["set"])
    m = dict(c["model"])
    drop = m.pop("drop", None)
    t["model"].update(m)
    if drop:
        del t["model"]["vocab"][drop]
    return t


def text(added):
    out = ""
    for _ in range(R.randint(1, 30)):
        out += R.choice(added) if added and R.random() < .1 else R.choice(PIECES)
    return out


for c in CONFIGS:
    t = build(c)
    hf = Tokenizer.from_str(json.dumps(t))
    added = [a["content"] for a in t["added_tokens"]]
    c["cases"] = []
    for _ in range(12):
        x = text(added)
        ids = [R.randrange(hf.get_vocab_size()) for _ in range(R.randint(0, 12))]
        try:
            dec_, skip = hf.decode(ids, skip_special_tokens=False), hf.decode(ids)
        except BaseException:  # the library panics on Strip of a short token
            ids, dec_, skip = [], hf.decode([]), hf.decode([])
        c["cases"].append({
            "text": x, "ids": hf.encode(x, add_special_tokens=False).ids, "ids_special": hf.encode(x).ids,
            "tokens": ids, "decoded": dec_, "decoded_skip_special": skip})

json.dump({"made_with": {"tokenizers": tokenizers.__version__, "python": sys.version.split()[0]}, "base": BASE, "configs": CONFIGS},
          open("components.json", "w"), ensure_ascii=True, separators=(",", ":"))
