"""openai: OpenAI's own client."""

import openai
from plan import check, close, equal, plan, refused, until_busy

client = openai.OpenAI(base_url=plan["base"], api_key=plan["key"], max_retries=0, timeout=60)
chat = {
    "model": plan["model"],
    "messages": [{"role": "user", "content": plan["prompt"]}],
    "max_tokens": plan["max_tokens"],
    "temperature": 0,
}
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
