"""instructor: answers that are objects of a class, over OpenAI's client."""

import instructor
import openai
from plan import check, equal, plan
from tale import Tale

client = openai.OpenAI(base_url=plan["base"], api_key=plan["key"], max_retries=0, timeout=60)
ask = {"model": plan["model"], "messages": [{"role": "user", "content": plan["prompt"]}], "temperature": 0, "response_model": Tale, "max_retries": 0}


@check("JSON Schema")
def _():
    equal(isinstance(instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA).create(**ask), Tale), True, "whether the answer is a tale")


@check("tools")
def _():
    equal(isinstance(instructor.from_openai(client, mode=instructor.Mode.TOOLS).create(**ask), Tale), True, "whether the answer is a tale")


@check("partial")
def _():
    parts = list(instructor.from_openai(client, mode=instructor.Mode.TOOLS).create_partial(**ask))
    equal(type(Tale.model_validate(parts[-1].model_dump())), Tale, "the last part")
