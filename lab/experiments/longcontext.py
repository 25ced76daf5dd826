#!/usr/bin/env python3
"""Writes prompts of about 0.5k, 1k, 2k, 4k and 7k tokens of SmolLM2: a long document, cut, with a question after it.

    longcontext.py WIKI STORIES PLAYS OUT

WIKI, STORIES and PLAYS are wikitext2_valid.txt, tinystories_val_794k.txt and tinyshakespeare.txt. Nine places of these
texts end the documents of every length, so that only what stands before them differs. OUT receives a file of EAGLE's
questions for each length, 512.jsonl to 7k.jsonl, for `talf bench --prompts`.
"""
import json
import os
import re
import sys

LENGTHS = {"512": 480, "1k": 960, "2k": 1980, "4k": 4000, "7k": 7400}  # tokens, about
QUESTIONS = [
    "Summarize the text above in a few sentences.",
    "What is the last part of the text above about? Explain it in your own words.",
    "Write an email to a friend about what you have just read in the text above.",
]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def before(text, place, n):
    """The sentences in the n characters before a place."""
    end = int(len(text) * place)
    s = text[max(0, end - n):end]
    return s[s.find(" ") + 1:s.rfind(".") + 1]


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    wiki, stories, plays, out = sys.argv[1:]
    wiki = re.sub(r" ([,.;:)])", r"\1", re.sub(r" @(.)@ ", r"\1", read(wiki)))
    stories, plays = read(stories).replace("<|endoftext|>", ""), read(plays)
    # Text, characters of a token, places.
    documents = [(wiki, 4.05, [0.1, 0.35, 0.6, 0.85]), (stories, 4.0, [0.2, 0.5, 0.8]), (plays, 3.15, [0.3, 0.7])]
    os.makedirs(out, exist_ok=True)
    for name, tokens in LENGTHS.items():
        with open(os.path.join(out, name + ".jsonl"), "w", encoding="utf-8") as f:
            i = 0
            for text, chars, places in documents:
                for place in places:
                    document = before(text, place, int((tokens - 60) * chars))
                    f.write(json.dumps({"turns": [document + "\n\n" + QUESTIONS[i % len(QUESTIONS)]]}) + "\n")
                    i += 1


if __name__ == "__main__":
    main()
