"""anthropic: Anthropic's client of its Messages API."""

import anthropic
from plan import check, equal, plan, refused, until_busy
from tale import RESULT, Tale

client = anthropic.Anthropic(base_url=plan["base"].removesuffix("/v1"), api_key=plan["key"], max_retries=0, timeout=60)
message = {
    "model": plan["model"],
    "messages": [{"role": "user", "content": plan["prompt"]}],
    "max_tokens": plan["max_tokens"],
    "extra_body": {"temperature": 0},  # which this client has no parameter for
}


@check("messages")
def _():
    r = client.messages.create(**message)
    equal([(b.type, b.text) for b in r.content], [("text", plan["text"])], "content")
    equal((r.role, r.stop_reason, r.type), ("assistant", "max_tokens", "message"), "role, stop_reason and type")
    equal(r.usage.output_tokens, plan["max_tokens"], "output_tokens")


@check("stream")
def _():
    with client.messages.stream(**message) as s:
        equal("".join(s.text_stream), plan["text"], "text")
        last = s.get_final_message()
    equal((last.stop_reason, last.usage.output_tokens), ("max_tokens", plan["max_tokens"]), "stop_reason and output_tokens")


@check("stop")
def _():
    r = client.messages.create(**message, stop_sequences=[plan["stop"]])
    equal((r.content[0].text, r.stop_reason, r.stop_sequence), (plan["stopped"], "stop_sequence", plan["stop"]), "text, reason and sequence")


@check("count tokens")
def _():
    n = client.messages.count_tokens(model=plan["model"], messages=message["messages"]).input_tokens
    u = client.messages.create(**message).usage
    equal(u.input_tokens + u.cache_read_input_tokens, n, "input_tokens, with those of the cache,")


@check("parse")
def _():
    r = client.messages.parse(**{**message, "max_tokens": 1000}, output_format=Tale)
    equal(type(r.parsed_output), Tale, "what was parsed")


@check("tools")
def _():
    offer = {**message, "max_tokens": 1000, "tools": [{"name": "tell", "description": Tale.__doc__, "input_schema": Tale.model_json_schema()}]}
    r = client.messages.create(**offer, tool_choice={"type": "any", "disable_parallel_tool_use": True})
    equal(([b.type for b in r.content], r.stop_reason), (["tool_use"], "tool_use"), "content and stop_reason")
    call = r.content[0]
    Tale.model_validate(call.input)
    with client.messages.stream(**offer, tool_choice={"type": "tool", "name": "tell"}) as s:
        parts = "".join(e.partial_json for e in s if e.type == "input_json")
        last = s.get_final_message()
    equal((last.stop_reason, last.content[0].name, last.content[0].input), ("tool_use", "tell", call.input), "the streamed call")
    Tale.model_validate_json(parts)

    # What was put out goes back as it is.
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": RESULT}]}
    offer = {**offer, "max_tokens": plan["max_tokens"], "messages": [*message["messages"], {"role": "assistant", "content": r.content}, {"role": "user", "content": [result]}]}
    r = client.messages.create(**offer)
    equal([b.type for b in r.content], ["text"], "content of the answer")
    with client.messages.stream(**offer) as s:
        equal("".join(s.text_stream), r.content[0].text, "the streamed answer")
    counted = client.messages.count_tokens(model=plan["model"], messages=offer["messages"], tools=offer["tools"]).input_tokens
    equal(r.usage.input_tokens + r.usage.cache_read_input_tokens, counted, "input_tokens, with those of the cache,")


@check("bad request")
def _():
    e = refused(lambda: client.messages.create(**{**message, "extra_body": {"temperature": 9}}), anthropic.BadRequestError, status_code=400)
    equal(e.body["error"]["type"], "invalid_request_error", "type")


@check("wrong key")
def _():
    refused(lambda: client.with_options(api_key="wrong").messages.create(**message), anthropic.AuthenticationError, status_code=401)


@check("busy")
def _():
    busy = anthropic.Anthropic(base_url=plan["busy"].removesuffix("/v1"), api_key=plan["key"], max_retries=0, timeout=60)
    e = until_busy(lambda: busy.messages.create(**message), anthropic.RateLimitError)
    equal(e.status_code, 429, "status")
