"""Renders the conversations of chat/*.jsonl with transformers again.

    python3 tools/goldens/chat.py [--out OUT] [NAME …]

The four templates of this project are in the repository; published ones are read from
$TALF_SHARED/data/chat/NAME.jinja and left out where that is absent. A line holds the variables of
the template; text or error, and assistant_spans, are what transformers makes of them.
"""

import json
import os
import pathlib

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

import stored

RESULT = ("text", "error", "assistant_spans")


def template(name: str) -> str | None:
    if (stored.HOME / f"chat/{name}.jinja").exists() or (stored.HOME / f"chat/{name}.jinja.gz").exists():
        return stored.text(f"chat/{name}.jinja")
    path = pathlib.Path(os.environ.get("TALF_SHARED", stored.REPO.parent / "shared")) / "data" / "chat" / f"{name}.jinja"
    return path.read_text() if path.exists() else None


def render(source: str, case: dict) -> dict:
    args = {k: v for k, v in case.items() if k not in RESULT and k != "name"}
    messages, tools = args.pop("messages"), args.pop("tools", None)
    # Only whole conversations have spans: a prompt for generation ends before an answer.
    marked = "generation %}" in source and not args.get("add_generation_prompt")
    try:
        texts, spans = render_jinja_template(
            [messages], tools=tools, chat_template=source, add_generation_prompt=args.pop("add_generation_prompt", False),
            return_assistant_tokens_mask=marked, **args,
        )
    except (jinja2.exceptions.TemplateError, TypeError, ValueError) as e:
        return {"error": f"{type(e).__name__}: {e}"}
    out = {"text": texts[0]}
    if marked:  # characters to bytes
        out["assistant_spans"] = [[len(texts[0][:i].encode()) for i in s] for s in spans[0]]
    return out


def main() -> None:
    report = stored.Report(__doc__)
    for f in sorted((stored.HOME / "chat").glob("*.jsonl*")):
        name = f.name.removesuffix(".gz").removesuffix(".jsonl")
        if not report.wants(name):
            continue
        source = template(name)
        if source is None:
            print(f"{name}: the published template is absent")
            continue
        cases, out = stored.lines(f"chat/{name}.jsonl"), []
        for case in cases:
            got = render(source, case)
            out.append({k: v for k, v in case.items() if k not in RESULT} | got)
            if not report.args.out:
                for key in RESULT:
                    report.equal(f"{name}, {case['name']}", key, got.get(key), case.get(key))
        if report.args.out:
            dest = report.args.out / "chat" / f"{name}.jsonl"
            dest.parent.mkdir(parents=True, exist_ok=True)
            dest.write_text("".join(json.dumps(c, ensure_ascii=False) + "\n" for c in out))
        print(f"{name}: {len(cases)} conversations")
    report.done()


if __name__ == "__main__":
    main()
