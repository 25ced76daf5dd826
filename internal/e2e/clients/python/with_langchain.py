"""langchain-openai: LangChain's chat model and text model over OpenAI's API."""

import openai
from langchain_openai import ChatOpenAI, OpenAI
from plan import check, equal, plan, refused

common = {"base_url": plan["base"], "api_key": plan["key"], "model": plan["model"], "temperature": 0, "max_retries": 0}
chat = ChatOpenAI(**common, max_tokens=plan["max_tokens"])


@check("chat")
def _():
    r = chat.invoke([("human", plan["prompt"])])
    equal(r.content, plan["text"], "text")
    equal(r.response_metadata["finish_reason"], "length", "finish_reason")
    equal(r.usage_metadata["output_tokens"], plan["max_tokens"], "output_tokens")


@check("stream")
def _():
    total = None
    for c in ChatOpenAI(**common, max_tokens=plan["max_tokens"], stream_usage=True).stream([("human", plan["prompt"])]):
        total = c if total is None else total + c
    equal(total.content, plan["text"], "text")
    equal(total.usage_metadata["output_tokens"], plan["max_tokens"], "output_tokens")
    equal(total.response_metadata["finish_reason"], "length", "finish_reason")


@check("logprobs")
def _():
    r = chat.bind(logprobs=True, top_logprobs=2).invoke([("human", plan["prompt"])])
    equal("".join(t["token"] for t in r.response_metadata["logprobs"]["content"]), plan["text"], "the text of the tokens")


@check("stop")
def _():
    equal(chat.invoke([("human", plan["prompt"])], stop=[plan["stop"]]).content, plan["stopped"], "text")


@check("batch")
def _():
    equal([r.content for r in chat.batch([plan["prompt"]] * 3)], [plan["text"]] * 3, "texts")


@check("completions")
def _():
    equal(OpenAI(**common, max_tokens=plan["max_tokens"]).invoke(plan["prompt"]), plan["text"], "text")


@check("bad request")
def _():
    refused(lambda: chat.bind(top_p=7).invoke("x"), openai.BadRequestError, param="top_p")
