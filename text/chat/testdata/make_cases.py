"""Renders templates.txt with transformers and writes what comes out.

    python make_cases.py < templates.txt > cases.jsonl

Each block of templates.txt is a template; blocks are separated by lines of
"=====". Every line of the output holds the template, the variables, the versions
it was made with, and text and spans (bytes of text) or error.
"""
import datetime as dt
import json
import sys
import warnings

import jinja2
import transformers
from transformers.utils import chat_template_utils as ctu

warnings.filterwarnings("ignore")


class Fixed(dt.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 4, 15, 6, 9, 123456)


ctu.datetime = Fixed

VARS = {
    "messages": [
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "  Grüße, <b>\"you\"</b> & 'me' \n"},
        {"role": "assistant", "content": "Hello there. 日本語 🎉", "tool_calls": [
            {"id": "abc123def", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [1.5, None, True, "ü"], "c": {}}}},
        ]},
        {"role": "tool", "content": "{\"x\": 1}", "tool_call_id": "abc123def"},
        {"role": "assistant", "content": "Done.", "reasoning": "hm"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "It's \"f\"", "parameters": {"type": "object", "properties": {}, "required": []}}}],
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "n": 7, "m": -3, "z": 0, "x": 2.5, "big": 123456789012345678901234567890, "tiny": 1e-7, "huge": 1e22, "whole": 3.0,
    "t": True, "f": False, "none_": None, "s": "hello World", "e": "", "u": "Straße ǆ İx ﬁ",
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "mixed": [1, "a", None, 2.0, True], "nested": [[1, 2], [3, [4, 5]]],
    "d": {"b": 1, "a": 2, "C": 3}, "o": {"k": {"deep": [10, 20]}, "items": "shadow", "x y": 1},
    "people": [{"name": "Bo", "age": 30, "tag": {"v": "x"}}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30, "tag": {"v": "X"}}],
    "lines": "one\n two\n\nthree\r\nfour",
}


def render(template, variables=VARS):
    v = dict(variables)
    messages, tools, gen = v.pop("messages"), v.pop("tools", None), v.pop("add_generation_prompt", False)
    out = {}
    try:
        ctu._compile_jinja_template.cache_clear()
        (text,), (spans,) = ctu.render_jinja_template(
            [messages], tools=tools, chat_template=template, return_assistant_tokens_mask=True, add_generation_prompt=gen, **v)
        out["text"] = text
        out["text"].encode()
        if spans:
            out["spans"] = [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]
    except Exception as e:
        out = {"error": f"{type(e).__name__}: {e}"}
    return out


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    print(json.dumps({"transformers": transformers.__version__, "jinja2": jinja2.__version__, "python": sys.version.split()[0], "variables": VARS}, ensure_ascii=False))
    for block in sys.stdin.read().split("\n=====\n"):
        print(json.dumps({"template": block, **render(block)}, ensure_ascii=False))
