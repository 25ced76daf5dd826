"""Checks a server of the embedded model with the conformance tests of llm-comply.

    comply.py URL MODEL KEY

URL ends in /v1. Each test has to end as OUTCOMES says, also where that is a failure:
one that passes by surprise is news, too. What the server refuses it has to refuse by
name, with status 400.
"""

import pathlib
import sys

import llm_comply
from llm_comply.config import ComplianceConfig
from llm_comply.runner import TestRunner
from llm_comply.schema import SpecLoader
from llm_comply.tests import get_tests

SPECS = {"openai-chat": "openai_chat.json", "open-responses": "openresponses.json", "anthropic": "anthropic.json"}

# The requests of these tests have no seed, and a model that has read nothing but stories may write
# an argument that does not end. Then, and only then, the call is cut off.
UNENDED = "finish_reason: expected 'tool_calls', got 'length'"
UNENDED_MESSAGE = "stop_reason: expected 'tool_use', got 'max_tokens'"

# The tests that do not pass: the text that the refusal has, or None for a test that
# llm-comply leaves out because of the model's name.
OUTCOMES = {
    "openai-chat": {
        "chat-tool-calling": UNENDED,
        "chat-image-input": "content[1].type",
        "chat-reasoning-summary": None,
        # A request without the name of a model is answered: there is one model.
        "chat-error-handling": "HTTP 200",
    },
    "open-responses": {
        "image-input": "content[1].type",
        "reasoning-summary": None,
    },
    "anthropic": {
        "anth-tool-calling": UNENDED_MESSAGE,
        "anth-image-input": "content[1].type",
        "anth-thinking-display": None,
    },
}


def outcome(result):
    """What OUTCOMES has to say of a result; "passed" stands for no entry."""
    status = result.status.value
    if status != "failed":
        return None if status == "skipped" else "passed"
    if "HTTP 400 (expected [200])" not in result.errors:
        return "; ".join(result.errors)
    error = result.response["error"]
    return str(error.get("param") or "") + " " + error["message"]


def check(url, model, key, form):
    tests = get_tests(form)
    spec = SpecLoader(str(pathlib.Path(llm_comply.__file__).parent / "specs" / SPECS[form]))
    config = ComplianceConfig(base_url=url, api_key=key, model=model, verbose=True)
    wrong, counts = [], {}
    for result in TestRunner(config, tests, spec).run_all().results:
        counts[result.status.value] = counts.get(result.status.value, 0) + 1
        got, want = outcome(result), OUTCOMES[form].get(result.id, "passed")
        unended = want in (UNENDED, UNENDED_MESSAGE)
        if unended and got == "passed":
            continue
        if got != want and (got is None or want is None or want == "passed" or unended or want not in got):
            wrong.append(f"{form} {result.id}: {got}, want {want}")
        if not result.id.startswith("compact-"):  # a route that this server does not have
            wrong += [f"{form} {result.id}: warning: {w}" for w in result.warnings]
    missing = set(OUTCOMES[form]) - {t.id for t in tests}
    wrong += [f"{form}: no test {name}" for name in missing]
    print(f"llm-comply {llm_comply.__version__}, {form}: {len(tests)} tests, {counts}")
    return wrong


def main():
    url, model, key = sys.argv[1:]
    wrong = [line for form in SPECS for line in check(url, model, key, form)]
    if wrong:
        raise SystemExit("\n".join(wrong))


main()
