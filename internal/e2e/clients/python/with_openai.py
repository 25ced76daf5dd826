"""openai: OpenAI's own client."""

import openai
from plan import check, close, equal, plan, refused, until_busy
from tale import RESULT, Tale

client = openai.OpenAI(base_url=plan["base"], api_key=plan["key"], max_retries=0, timeout=60)
chat = {
    "model": plan["model"],
    "messages": [{"role": "user", "content": plan["prompt"]}],
    "max_tokens": plan["max_tokens"],
    "temperature": 0,
}
free = {k: v for k, v in chat.items() if k != "max_tokens"}  # ends by itself
completion = {"model": plan["model"], "prompt": plan["prompt"], "max_tokens": plan["max_tokens"], "temperature": 0}


@check("models")
def _():
    names = [m.id for m in client.models.list()]
    equal(names, [plan["model"]], "the list of models")
    equal(client.models.retrieve(plan["model"]).object, "model", "object")


@check("chat")
def _():
    r = client.chat.completions.create(**chat)
    equal(r.object, "chat.completion", "object")
    equal(r.choices[0].message.content, plan["text"], "text")
    equal(r.choices[0].message.role, "assistant", "role")
    equal(r.choices[0].finish_reason, "length", "finish_reason")
    equal(r.usage.completion_tokens, plan["max_tokens"], "completion_tokens")
    equal(r.usage.total_tokens, r.usage.prompt_tokens + r.usage.completion_tokens, "total_tokens")


@check("stream")
def _():
    text, reasons, usage, roles = "", [], None, []
    for c in client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}):
        equal(c.object, "chat.completion.chunk", "object")
        for x in c.choices:
            equal(x.index, 0, "index")
            text += x.delta.content or ""
            reasons += [x.finish_reason] if x.finish_reason else []
            roles += [x.delta.role] if x.delta.role else []
        if c.usage:
            equal(c.choices, [], "choices beside the usage")
            usage = c.usage
    equal(text, plan["text"], "text")
    equal(reasons, ["length"], "finish reasons")
    equal(roles, ["assistant"], "roles")
    equal(usage.completion_tokens, plan["max_tokens"], "completion_tokens")


@check("stream helper")
def _():
    # The helper takes an answer that is cut off at max_tokens for an error.
    with client.chat.completions.stream(**chat, stop=plan["stop"]) as s:
        equal(s.get_final_completion().choices[0].message.content, plan["stopped"], "text")


@check("logprobs")
def _():
    content = client.chat.completions.create(**chat, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    equal(len(content), plan["max_tokens"], "tokens")
    equal(b"".join(bytes(t.bytes) for t in content).decode(), plan["text"], "the text of the tokens")
    for t in content:
        equal(len(t.top_logprobs), 2, "alternatives")
        equal((t.top_logprobs[0].token, t.top_logprobs[0].logprob), (t.token, t.logprob), "the likeliest token")
    old = client.completions.create(**completion, logprobs=2).choices[0].logprobs
    close(old.token_logprobs, [t.logprob for t in content], "logprobs")


@check("n")
def _():
    r = client.chat.completions.create(**{**chat, "temperature": plan["temperature"]}, n=2, seed=plan["seed"])
    equal([c.message.content for c in r.choices], plan["sampled"], "texts")
    equal([c.index for c in r.choices], [0, 1], "indices")


@check("stop")
def _():
    c = client.chat.completions.create(**chat, stop=[plan["stop"]]).choices[0]
    equal((c.message.content, c.finish_reason), (plan["stopped"], "stop"), "text and reason")


@check("prediction")
def _():
    r = client.chat.completions.create(**chat, prediction={"type": "content", "content": plan["text"]})
    equal(r.choices[0].message.content, plan["text"], "text")
    d = r.usage.completion_tokens_details
    if d.accepted_prediction_tokens < plan["max_tokens"] // 2:
        raise AssertionError(f"{d.accepted_prediction_tokens} predicted tokens were accepted")
    equal(r.usage.completion_tokens, plan["max_tokens"] + d.rejected_prediction_tokens, "completion_tokens")


@check("completions")
def _():
    r = client.completions.create(**completion)
    equal(r.choices[0].text, plan["text"], "text")
    text = "".join(c.choices[0].text for c in client.completions.create(**completion, stream=True))
    equal(text, plan["text"], "streamed text")


@check("echo")
def _():
    r = client.completions.create(**{**completion, "max_tokens": 0}, echo=True, logprobs=1)
    l = r.choices[0].logprobs
    equal((r.choices[0].text, r.usage.completion_tokens), (plan["prompt"], 0), "text and completion_tokens")
    equal((l.token_logprobs[0], l.top_logprobs[0]), (None, None), "logprobs of the first token")
    equal({len(l.tokens), len(l.token_logprobs), len(l.top_logprobs), len(l.text_offset)}, {r.usage.prompt_tokens}, "lengths")
    # The answer's tokens, scored as a prompt, have the logprobs that they were given.
    r = client.completions.create(**completion, echo=True, logprobs=1)
    answer = r.choices[0].logprobs.token_logprobs[r.usage.prompt_tokens:]
    whole = client.completions.create(**{**completion, "prompt": r.choices[0].text, "max_tokens": 0}, echo=True, logprobs=1)
    close(whole.choices[0].logprobs.token_logprobs[r.usage.prompt_tokens:], answer, "logprobs")


@check("responses")
def _():
    r = client.responses.create(model=plan["model"], input=plan["prompt"], max_output_tokens=plan["max_tokens"], temperature=0)
    equal(r.output_text, plan["text"], "text")
    equal(r.usage.output_tokens, plan["max_tokens"], "output_tokens")
    with client.responses.stream(model=plan["model"], input=plan["prompt"], max_output_tokens=plan["max_tokens"], temperature=0) as s:
        text = "".join(e.delta for e in s if e.type == "response.output_text.delta")
    equal(text, plan["text"], "streamed text")


@check("parse")
def _():
    tale = client.chat.completions.parse(**free, response_format=Tale).choices[0].message.parsed
    equal(type(tale), Tale, "what was parsed")
    with client.chat.completions.stream(**free, response_format=Tale) as s:
        equal(s.get_final_completion().choices[0].message.parsed, tale, "what was streamed")
    r = client.responses.parse(model=plan["model"], input=plan["prompt"], temperature=0, text_format=Tale)
    equal(r.output_parsed, tale, "what a response has")


@check("tools")
def _():
    tool = openai.pydantic_function_tool(Tale, name="tell")
    offer = {**free, "tools": [tool], "parallel_tool_calls": False}
    choice = client.chat.completions.parse(**offer, tool_choice="required").choices[0]
    equal((choice.finish_reason, choice.message.content, len(choice.message.tool_calls)), ("tool_calls", None, 1), "reason, content and calls")
    call = choice.message.tool_calls[0]
    equal((call.type, call.function.name, type(call.function.parsed_arguments)), ("function", "tell", Tale), "the call")
    with client.chat.completions.stream(**offer, tool_choice={"type": "function", "function": {"name": "tell"}}) as s:
        streamed = s.get_final_completion().choices[0]
    equal((streamed.finish_reason, streamed.message.tool_calls[0].function.arguments), ("tool_calls", call.function.arguments), "the streamed call")

    message = {"role": "assistant", "tool_calls": [{"id": call.id, "type": "function", "function": {"name": "tell", "arguments": call.function.arguments}}]}
    offer = {**chat, "tools": [tool], "messages": [*chat["messages"], message, {"role": "tool", "tool_call_id": call.id, "content": RESULT}]}
    answer = client.chat.completions.create(**offer, tool_choice="auto").choices[0].message
    equal((bool(answer.content), answer.tool_calls), (True, None), "text and calls of the answer")

    # Responses, in which what was put out goes back as it is.
    function = tool["function"]
    offer = {"model": plan["model"], "temperature": 0, "tools": [{"type": "function", **function}]}
    talk = [{"role": "user", "content": plan["prompt"]}]
    r = client.responses.create(**offer, input=talk, tool_choice="required", parallel_tool_calls=False)
    equal([(o.type, o.status, o.name) for o in r.output], [("function_call", "completed", "tell")], "output")
    equal(r.output[0].arguments, call.function.arguments, "arguments of a response")
    with client.responses.stream(**offer, input=talk, tool_choice={"type": "function", "name": "tell"}) as s:
        deltas = "".join(e.delta for e in s if e.type == "response.function_call_arguments.delta")
        last = s.get_final_response().output[0]
    equal((deltas, last.arguments), (call.function.arguments,) * 2, "streamed arguments")
    talk += [o.model_dump(exclude_none=True) for o in r.output]
    talk += [{"type": "function_call_output", "call_id": r.output[0].call_id, "output": RESULT}]
    r = client.responses.create(**offer, input=talk, max_output_tokens=plan["max_tokens"])
    equal(r.output_text, answer.content, "the answer of a response")


@check("bad request")
def _():
    refused(lambda: client.chat.completions.create(**{**chat, "temperature": 9}), openai.BadRequestError,
            status_code=400, param="temperature", type="invalid_request_error")
    refused(lambda: client.chat.completions.create(**chat, tools=[{"type": "custom", "custom": {"name": "f"}}]),
            openai.BadRequestError, param="tools[0].type", code="unsupported_parameter")


@check("wrong key")
def _():
    refused(lambda: client.with_options(api_key="wrong").models.list(), openai.AuthenticationError, status_code=401, code="invalid_api_key")


@check("not found")
def _():
    refused(lambda: client.models.retrieve("nothing"), openai.NotFoundError, status_code=404, code="model_not_found")


@check("busy")
def _():
    busy = openai.OpenAI(base_url=plan["busy"], api_key=plan["key"], max_retries=0, timeout=60)
    e = until_busy(lambda: busy.chat.completions.create(**chat), openai.RateLimitError)
    equal((e.status_code, e.code), (429, "queue_full"), "status and code")
    if int(e.response.headers["retry-after"]) < 1:
        raise AssertionError("retry-after is " + e.response.headers["retry-after"])
