"""Encodes and decodes the texts of tokenizers/*/cases.jsonl with Hugging Face's tokenizers again.

    python3 tools/goldens/tokenizers_cases.py [--out OUT] [NAME …]

llama3-style is in the repository; published tokenizers are read from
$TALF_SHARED/data/tokenizers/NAME/tokenizer.json and left out where that is absent.
"""

import json
import os
import pathlib

from tokenizers import Tokenizer

import stored


def load(name: str) -> Tokenizer | None:
    home = stored.HOME / "tokenizers" / name
    if (home / "tokenizer.json").exists() or (home / "tokenizer.json.gz").exists():
        return Tokenizer.from_str(stored.text(f"tokenizers/{name}/tokenizer.json"))
    path = pathlib.Path(os.environ.get("TALF_SHARED", stored.REPO.parent / "shared")) / "data" / "tokenizers" / name / "tokenizer.json"
    return Tokenizer.from_file(str(path)) if path.exists() else None


def case(tok: Tokenizer, text: str) -> dict:
    special = tok.encode(text).ids
    return {
        "text": text,
        "ids": tok.encode(text, add_special_tokens=False).ids,
        "ids_special": special,
        "decoded": tok.decode(special, skip_special_tokens=False),
        "decoded_skip_special": tok.decode(special, skip_special_tokens=True),
    }


def main() -> None:
    report = stored.Report(__doc__)
    for name in sorted(p.name for p in (stored.HOME / "tokenizers").iterdir()):
        if not report.wants(name) or name == "gsm10m":  # has no cases
            continue
        tok = load(name)
        if tok is None:
            print(f"{name}: the published tokenizer is absent")
            continue
        want = stored.lines(f"tokenizers/{name}/cases.jsonl")
        got = [case(tok, c["text"]) for c in want]
        if report.args.out:
            dest = report.args.out / "tokenizers" / name / "cases.jsonl"
            dest.parent.mkdir(parents=True, exist_ok=True)
            dest.write_text("".join(json.dumps(c, ensure_ascii=False) + "\n" for c in got))
        else:
            for g, w in zip(got, want, strict=True):
                for key in g:
                    report.equal(f"{name}, {g['text'][:30]!r}", key, g[key], w.get(key))
        print(f"{name}: {len(got)} texts")
    report.done()


if __name__ == "__main__":
    main()
