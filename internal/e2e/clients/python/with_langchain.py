"""langchain-openai: LangChain's chat model and text model over OpenAI's API."""

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI, OpenAI
from plan import check, equal, plan, refused
from tale import RESULT, Tale

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


@check("structured output")
def _():
    free = ChatOpenAI(**common)
    tale = free.with_structured_output(Tale, method="json_schema").invoke(plan["prompt"])
    equal(type(tale), Tale, "what is in the format")
    called = free.with_structured_output(Tale, method="function_calling").invoke(plan["prompt"])
    equal(type(called), Tale, "what a call has")


@check("tools")
def _():
    talk = [HumanMessage(plan["prompt"])]
    call = ChatOpenAI(**common).bind_tools([Tale], tool_choice="required", parallel_tool_calls=False).invoke(talk)
    equal([c["name"] for c in call.tool_calls], ["Tale"], "calls")
    Tale.model_validate(call.tool_calls[0]["args"])
    talk += [call, ToolMessage(RESULT, tool_call_id=call.tool_calls[0]["id"])]
    answer = chat.bind_tools([Tale], tool_choice="auto").invoke(talk)
    equal((bool(answer.content), answer.tool_calls), (True, []), "text and calls of the answer")


@check("bad request")
def _():
    refused(lambda: chat.bind(top_p=7).invoke("x"), openai.BadRequestError, param="top_p")
