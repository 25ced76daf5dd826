#!/usr/bin/env python3
"""Writes what llama.cpp's converter makes of the models of data/hf-more.

    pip install torch numpy transformers sentencepiece pyyaml requests tqdm
    gguf_families.py LLAMA_CPP HF_MORE OUT.json

LLAMA_CPP is a copy of llama.cpp, whose convert_hf_to_gguf.py runs as it is, but for the tokenizer: the
models have none, so their files get a byte-level one that nothing is compared with. OUT has the keys of each file
with their types, and of each tensor the type, the dimensions, the length of a row first, and a hash of its
bytes. The test of model/gguf makes files of the same bytes from the models.
"""
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

FAMILIES = ["cohere2", "deepseek-v3", "gemma2", "gemma3", "glm4-moe", "gpt-oss", "gpt-oss-mxfp4", "granite", "mixtral", "olmo2", "phi3", "phi3-longrope",
            "qwen2-moe", "qwen3-moe", "qwen3-next", "smollm3", "starcoder2"]

CONVERT = """
import runpy, sys
llama, src, out = sys.argv[1:4]
sys.path[:0] = [llama, llama + "/gguf-py"]
import conversion
find = conversion.get_model_class

def vocab(self):
    n = self.hparams["vocab_size"]
    w = self.gguf_writer
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(["<|%d|>" % i for i in range(n)])
    w.add_token_merges(["a b"])

def model(*args, **kwargs):
    c = find(*args, **kwargs)
    c.set_vocab = vocab
    return c

conversion.get_model_class = model
sys.argv = ["convert", src, "--outfile", out, "--outtype", "f32"] + sys.argv[4:]
runpy.run_path(llama + "/convert_hf_to_gguf.py", run_name="__main__")
"""


def describe(path):
    import gguf

    r = gguf.GGUFReader(path)
    keys = []
    for name, f in r.fields.items():
        if name.startswith("GGUF.") or name.startswith("tokenizer.") or name.startswith("general.") and name != "general.architecture":
            continue
        keys.append([name, f.types[0].name, f.contents()])
    tensors = [[t.name, t.tensor_type.name, [int(d) for d in t.shape], hashlib.sha256(bytes(t.data)).hexdigest()[:24]] for t in r.tensors]
    return {"keys": keys, "tensors": tensors}


def main():
    llama, models, out = sys.argv[1:]
    sys.path.insert(0, llama + "/gguf-py")
    lines = []
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as d:
            src, to = os.path.join(d, "model"), os.path.join(d, "model.gguf")
            os.mkdir(src)
            for name in os.listdir(os.path.join(models, family)):
                shutil.copyfile(os.path.join(models, family, name), os.path.join(src, name))
            with open(os.path.join(src, "config.json"), encoding="utf-8") as f:
                n = json.load(f)["vocab_size"]
            # Gemma 3's embedding is cut to as many rows as the tokenizer has tokens.
            with open(os.path.join(src, "tokenizer.json"), "w", encoding="utf-8") as f:
                json.dump({"added_tokens": [], "model": {"vocab": {str(i): i for i in range(n)}}}, f)
            more = ["--no-mtp"] if family == "qwen3-next" else []  # the model has no such module
            subprocess.run([sys.executable, "-c", CONVERT, llama, src, to, *more], check=True, stderr=subprocess.DEVNULL)
            lines.append(json.dumps(family) + ": " + json.dumps(describe(to), separators=(",", ":")))
    with open(out, "w", encoding="utf-8") as f:
        f.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
