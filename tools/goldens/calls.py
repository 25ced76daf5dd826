"""Renders a conversation that calls a tool with published templates, and keeps what the assistant writes.

    python3 tools/goldens/calls.py TEMPLATES OUT

TEMPLATES is a directory with NAME.jinja, such as models/templates of llama.cpp's sources, OUT the file to write:
model/toolcall/testdata/rendered.jsonl. Templates stay where they are. Needs transformers and jinja2.
"""

import json
import pathlib
import sys

from transformers.utils.chat_template_utils import render_jinja_template

ARGUMENTS = {"city": 'Zürich "<x>"', "days": 2}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather in a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
# What stands before and after the call.
NAMES = {
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": ("hermes", "<|im_start|>assistant\n", "<|im_end|>"),
    "Qwen-Qwen3-0.6B": ("hermes", "<|im_start|>assistant\n", "<|im_end|>"),
    "Qwen-Qwen2.5-7B-Instruct": ("hermes", "<|im_start|>assistant\n", "<|im_end|>"),
    "meta-llama-Llama-3.1-8B-Instruct": ("llama3", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    "meta-llama-Llama-3.3-70B-Instruct": ("llama3", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    "mistralai-Mistral-Nemo-Instruct-2407": ("mistral", "[/INST]", "</s>"),
    "deepseek-ai-DeepSeek-R1-Distill-Llama-8B": ("deepseek", "<｜Assistant｜>", "<｜tool▁outputs▁begin｜>"),
    "deepseek-ai-DeepSeek-V3.1": ("deepseek-v3.1", "<｜Assistant｜><think></think>", "<｜end▁of▁sentence｜>"),
    "openai-gpt-oss-120b": ("harmony", "<|start|>assistant", "<|start|>functions"),
}


def main(templates: str, out: str) -> None:
    with open(out, "w", encoding="utf-8") as f:
        for name, (form, before, after) in NAMES.items():
            source = (pathlib.Path(templates) / f"{name}.jinja").read_text(encoding="utf-8")
            content = None if form == "deepseek" else ""
            arguments = json.dumps(ARGUMENTS, ensure_ascii=False) if form == "deepseek" else ARGUMENTS
            call = {"type": "function", "id": "abcdef123", "function": {"name": "weather", "arguments": arguments}}
            messages = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": content, "tool_calls": [call]},
                        {"role": "tool", "name": "weather", "tool_call_id": "abcdef123", "content": "21"}]
            text = render_jinja_template([messages], tools=[TOOL], chat_template=source, add_generation_prompt=False, bos_token="<s>",
                                         eos_token="</s>", date_string="26 Jul 2024")[0][0]
            said = text.split("Weather?")[-1].split(before, 1)[1].split(after)[0]
            f.write(json.dumps({"template": name, "format": form, "text": said}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
