"""Records what llama.cpp and transformers make of the real models of internal/zoo.

    python3 tools/goldens/zoo.py --llama BIN --out OUT [NAME …]

BIN holds llama.cpp's programs. The models lie in the cache ($TALF_ZOO, by default ~/.cache/talf-models). Each is
dequantised to float32 first, so that what is recorded is the meaning of its weights, without the rounding of
activations that llama.cpp's products of quantised weights do; keys and values are float32, too.

Inputs are zoo/inputs.json (20 texts to continue, 20 conversations) and zoo/text.txt, all written for talf. For
each model OUT/zoo/NAME.json has

    prompts     ids; the greedy continuation, and by how much each of its tokens leads, in ln p, null where it is not told;
                for four of its positions the 20 most likely tokens as [id, ln p]
    perplexity  of windows of 512 tokens, of each of which the second half counts
    templates   of the 20 conversations by transformers with the file's template, and by llama.cpp where it differs
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import gguf
from transformers.utils.chat_template_utils import render_jinja_template

import stored

TOP, MORE, WINDOW, SLOTS = 20, 64, 512, 4
AT = (0, 7, 30, 63)  # tokens of a continuation that are recorded with the likely ones
THREADS = os.environ.get("THREADS", "2")
# float32 keys and values, and attention that computes in float32.
EXACT = ["-t", THREADS, "-ctk", "f32", "-ctv", "f32", "-fa", "off"]


class Server:
    """llama-server on a port of this machine, while the block runs."""

    def __init__(self, binary: pathlib.Path, model: pathlib.Path, log):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.command = [binary, "-m", model, "--host", "127.0.0.1", "--port", str(port), "--jinja", "--no-warmup",
                        "-c", str(SLOTS * 2048), "-np", str(SLOTS), *EXACT]
        self.log = log

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log)
        while True:
            try:
                urllib.request.urlopen(self.url + "/health")
                return self
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    raise SystemExit(f"llama-server ended: see {self.log.name}")
                time.sleep(0.2)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, path: str, body: dict | None = None) -> dict:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as r:
            return json.load(r)

    def complete(self, ids: list[int]) -> tuple[list[int], dict[int, list]]:
        """The greedy continuation, and by its index the likely tokens of each token that ends a character: the server tells no others."""
        out = self.ask("/completion", {
            "prompt": ids, "n_predict": MORE, "n_probs": TOP, "temperature": 0, "cache_prompt": False, "return_tokens": True,
        })
        tokens, told, at = out["tokens"], {}, 0
        for row in out.get("completion_probabilities", []):
            at = tokens.index(row["id"], at)
            told[at] = [[t["id"], round(t["logprob"], 6)] for t in row["top_logprobs"]]
            if told[at][0][0] != row["id"]:
                raise SystemExit(f"the server wrote {row}, which is not the most likely token")
            at += 1
        return tokens, told


def prompt(server: Server, text: str) -> dict:
    ids = server.ask("/tokenize", {"content": text, "add_special": True})["tokens"]
    tokens, told = server.complete(ids)
    leads = [round(told[i][0][1] - told[i][1][1], 6) if i in told else None for i in range(len(tokens))]
    likely = [{"after": len(ids) + i, "top": told[i]} for i in AT if i in told]
    return {"ids": ids, "likely": likely, "greedy": tokens, "leads": leads}


def perplexity(binary: pathlib.Path, model: pathlib.Path, text: pathlib.Path) -> dict:
    run = subprocess.run([binary, "-m", model, "-f", text, "-c", str(WINDOW), "-b", str(WINDOW), *EXACT], capture_output=True, text=True, check=True)
    both = run.stdout + run.stderr
    windows = [float(x) for x in re.findall(r"\[\d+\]([0-9.]+),", both)]
    return {"window": WINDOW, "after_windows": windows, "final": float(re.search(r"Final estimate: PPL = ([0-9.]+)", both)[1])}


def templates(source: str, special: dict, conversations: list[dict], server: Server) -> list[dict]:
    out = []
    for c in conversations:
        texts, _ = render_jinja_template([c["messages"]], tools=c.get("tools"), chat_template=source,
                                         add_generation_prompt=c["add_generation_prompt"], **special)
        entry = {"name": c["name"], "text": texts[0]}
        body = {k: v for k, v in c.items() if k != "name"}
        body["messages"] = [arguments_as_text(m) for m in c["messages"]]
        try:
            theirs = server.ask("/apply-template", body)["prompt"]
        except urllib.error.HTTPError as e:
            theirs = f"{e.code}: {e.read().decode()}"
        if theirs != texts[0]:
            entry["llama.cpp"] = theirs
        out.append(entry)
    return out


def arguments_as_text(message: dict) -> dict:
    """The message as OpenAI's API has it, where arguments of calls are JSON in a string."""
    calls = [c | {"function": c["function"] | {"arguments": json.dumps(c["function"]["arguments"])}} for c in message.get("tool_calls", [])]
    return message | ({"tool_calls": calls} if calls else {})


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--llama", type=pathlib.Path, required=True)
    p.add_argument("--out", type=pathlib.Path, required=True)
    p.add_argument("names", nargs="*")
    args = p.parse_args()
    cache = pathlib.Path(os.environ.get("TALF_ZOO") or pathlib.Path.home() / ".cache" / "talf-models")
    inputs = json.loads(stored.text("zoo/inputs.json"))
    for m in json.loads((stored.REPO / "internal/zoo/models.json").read_text()):
        if args.names and m["name"] not in args.names:
            continue
        with tempfile.TemporaryDirectory() as temp, open(pathlib.Path(temp) / "log", "w+") as log:
            text, exact = pathlib.Path(temp) / "text.txt", pathlib.Path(temp) / "f32.gguf"
            text.write_text(stored.text("zoo/text.txt"))
            subprocess.run([args.llama / "llama-quantize", "--allow-requantize", cache / m["file"], exact, "F32"], check=True, stdout=log, stderr=log)
            with Server(args.llama / "llama-server", exact, log) as server, concurrent.futures.ThreadPoolExecutor(SLOTS) as pool:
                props = server.ask("/props")
                out = {"sha256": m["sha256"], "llama.cpp": props["build_info"], "prompts": list(pool.map(lambda t: prompt(server, t), inputs["prompts"]))}
                template = gguf.GGUFReader(cache / m["file"]).get_field("tokenizer.chat_template")
                if template:
                    special = {"bos_token": props["bos_token"], "eos_token": props["eos_token"]}
                    out["templates"] = templates(template.contents(), special, inputs["conversations"], server)
            out["perplexity"] = perplexity(args.llama / "llama-perplexity", exact, text)
        dest = args.out / "zoo" / f"{m['name']}.json"
        dest.parent.mkdir(parents=True, exist_ok=True)
        dest.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(m["name"], out["perplexity"])


if __name__ == "__main__":
    main()
