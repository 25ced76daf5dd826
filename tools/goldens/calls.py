"""Renders conversations that call tools with published templates, and keeps the prompts and what the assistant writes.

    python3 tools/goldens/calls.py TEMPLATES OUT

TEMPLATES is a directory with NAME.jinja, such as models/templates of llama.cpp's sources, OUT the directory to write to:
text/toolcall/testdata. rendered.jsonl has calls as they are written, prompts.jsonl variables of templates with the text or
the error that comes of them. Templates stay where they are; prompts name them by SHA-256. Needs transformers and jinja2.
"""

import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
import transformers.utils.chat_template_utils as ctu

ARGUMENTS = {"city": 'Zürich "<x>"', "days": 2}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
OTHER = {"type": "function", "function": {"name": "now", "description": "The time & date", "parameters": {"type": "object", "properties": {}}}}
# What stands before and after the call.
NAMES = {
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", "<|im_start|>assistant\n", "<|im_end|>"),
    "Qwen-Qwen3-0.6B": ("hermes", "<|im_start|>assistant\n", "<|im_end|>"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", "<|im_start|>assistant\n", "<|im_end|>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", "[/INST]", "</s>"),
    "Mistral-Small-3.2-24B-Instruct-2506": ("mistral-v11", "[/INST]", "</s>"),
    "unsloth-mistral-Devstral-Small-2507": ("mistral-v13", "[/INST]", "</s>"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("deepseek", "<｜Assistant｜>", "<｜tool▁outputs▁begin｜>"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek-v3.1", "<｜Assistant｜><think></think>", "<｜end▁of▁sentence｜>"),
    "openai-gpt-oss-120b": ("harmony", "<|start|>assistant", "<|start|>functions"),
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "date_string": "26 Jul 2024"}


class Fixed(datetime.datetime):
    """The clock of templates that write the date."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26, tzinfo=tz)


ctu.datetime = Fixed


def render(source: str, messages: list, tools: list | None, ask: bool) -> str:
    return ctu.render_jinja_template([messages], tools=tools, chat_template=source, add_generation_prompt=ask, **TOKENS)[0][0]


def talks(form: str) -> dict:
    """The conversations by name: messages, and whether there are tools."""
    content = None if form == "deepseek" else ""

    def call(n: int, name: str, arguments: dict) -> dict:
        written = json.dumps(arguments, ensure_ascii=False) if form == "deepseek" else arguments
        return {"type": "function", "id": f"abcdef{n:03}", "function": {"name": name, "arguments": written}}

    def result(n: int, name: str, text: str) -> dict:
        return {"role": "tool", "name": name, "tool_call_id": f"abcdef{n:03}", "content": text}

    ask = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
    one = ask + [{"role": "assistant", "content": content, "tool_calls": [call(1, "weather", ARGUMENTS)]}, result(1, "weather", "21 °C")]
    two = ask + [{"role": "assistant", "content": content, "tool_calls": [call(1, "weather", ARGUMENTS), call(2, "now", {})]},
                 result(1, "weather", "21 °C"), result(2, "now", '{"hour": 9}')]
    more = [{"role": "assistant", "content": "Warm."}, {"role": "user", "content": "And later?"}]
    return {"plain": (ask, False), "asked": (ask, True), "called": (one, True), "answered": (one + more, True), "parallel": (two, True),
            "again": (one + more + [{"role": "assistant", "content": content, "tool_calls": [call(3, "now", {})]}, result(3, "now", "9")], True)}


def main(templates: str, out: str) -> None:
    said, prompts = [], []
    for name, (form, before, after) in NAMES.items():
        raw = (pathlib.Path(templates) / f"{name}.jinja").read_bytes()
        source = raw.decode()
        content = None if form == "deepseek" else ""
        arguments = json.dumps(ARGUMENTS, ensure_ascii=False) if form == "deepseek" else ARGUMENTS
        call = {"type": "function", "id": "abcdef123", "function": {"name": "weather", "arguments": arguments}}
        messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": content, "tool_calls": [call]},
                    {"role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": "21"}]
        text = render(source, messages, [TOOL], False)
        text = text.split("Weather?")[-1].split(before, 1)[1].split(after)[0]
        said.append({"template": name, "format": form, "text": text})
        for talk, (messages, told) in talks(form).items():
            tools = [TOOL, OTHER] if told else None
            case = {"template": name, "sha256": hashlib.sha256(raw).hexdigest(), "format": form, "name": talk, "messages": messages, "tools": tools,
                    "add_generation_prompt": True, **TOKENS}
            try:
                case["text"] = render(source, messages, tools, True)
            except (jinja2.exceptions.TemplateError, TypeError) as e:
                case["error"] = f"{type(e).__name__}: {e}"
            prompts.append(case)
    for name, lines in {"rendered": said, "prompts": prompts}.items():
        with open(pathlib.Path(out) / f"{name}.jsonl", "w", encoding="utf-8") as f:
            f.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
