"""litellm: one interface to many servers, ours as an OpenAI-compatible one."""

import litellm
from plan import check, equal, plan, refused, until_busy

litellm.telemetry = False
litellm.suppress_debug_info = True  # which it would print among the reports
common = {
    "model": "openai/" + plan["model"],
    "api_base": plan["base"],
    "api_key": plan["key"],
    "max_tokens": plan["max_tokens"],
    "temperature": 0,
    "max_retries": 0,
}
messages = [{"role": "user", "content": plan["prompt"]}]


@check("chat")
def _():
    r = litellm.completion(**common, messages=messages)
    equal((r.choices[0].message.content, r.choices[0].finish_reason), (plan["text"], "length"), "text and reason")
    equal(r.usage.completion_tokens, plan["max_tokens"], "completion_tokens")


@check("stream")
def _():
    chunks = list(litellm.completion(**common, messages=messages, stream=True, stream_options={"include_usage": True}))
    equal("".join(c.choices[0].delta.content or "" for c in chunks if c.choices), plan["text"], "text")
    equal([c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason], ["length"], "finish reasons")
    equal([c.usage.completion_tokens for c in chunks if getattr(c, "usage", None)], [plan["max_tokens"]], "completion_tokens")


@check("logprobs")
def _():
    r = litellm.completion(**common, messages=messages, logprobs=True, top_logprobs=1)
    equal("".join(t.token for t in r.choices[0].logprobs.content), plan["text"], "the text of the tokens")


@check("completions")
def _():
    r = litellm.text_completion(**{**common, "model": "text-completion-openai/" + plan["model"]}, prompt=plan["prompt"])
    equal(r.choices[0].text, plan["text"], "text")


@check("bad request")
def _():
    refused(lambda: litellm.completion(**{**common, "temperature": 9}, messages=messages), litellm.BadRequestError, status_code=400)


@check("wrong key")
def _():
    refused(lambda: litellm.completion(**{**common, "api_key": "wrong"}, messages=messages), litellm.AuthenticationError, status_code=401)


@check("busy")
def _():
    until_busy(lambda: litellm.completion(**{**common, "api_base": plan["busy"]}, messages=messages), litellm.RateLimitError)
