"""llm: the command-line tool, with the server as one of its extra models."""

import json
import os
import subprocess
import sys

from plan import check, equal, plan

user = os.path.join(os.path.dirname(sys.argv[1]), "llm")
os.makedirs(user, exist_ok=True)
with open(os.path.join(user, "extra-openai-models.yaml"), "w", encoding="utf-8") as f:
    json.dump([  # which YAML includes
        {"model_id": "talf", "model_name": plan["model"], "api_base": plan["base"], "api_key_name": "talf"},
        {"model_id": "talf-text", "model_name": plan["model"], "api_base": plan["base"], "api_key_name": "talf", "completion": True},
    ], f)
with open(os.path.join(user, "keys.json"), "w", encoding="utf-8") as f:
    json.dump({"talf": plan["key"]}, f)


def llm(*args):
    done = subprocess.run(
        [sys.executable, "-m", "llm", *args], env={**os.environ, "LLM_USER_PATH": user}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return done.stdout


options = ["-o", "temperature", "0", "-o", "max_tokens", str(plan["max_tokens"])]


@check("chat")
def _():
    equal(llm("-m", "talf", "--no-stream", *options, plan["prompt"]).rstrip("\n"), plan["text"].rstrip("\n"), "text")


@check("stream")
def _():
    equal(llm("-m", "talf", *options, plan["prompt"]).rstrip("\n"), plan["text"].rstrip("\n"), "text")


@check("completions")
def _():
    equal(llm("-m", "talf-text", *options, plan["prompt"]).rstrip("\n"), plan["text"].rstrip("\n"), "text")


@check("log")
def _():
    last = json.loads(llm("logs", "-n", "1", "--json"))[0]
    equal(last["response"].rstrip("\n"), plan["text"].rstrip("\n"), "text")
