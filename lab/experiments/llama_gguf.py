#!/usr/bin/env python3
"""Writes a Llama model directory as a GGUF file of F32, for llama.cpp's server beside talf's.

    pip install numpy safetensors gguf
    llama_gguf.py MODEL OUT.gguf
    llama_gguf.py --random 110m MODEL NEW OUT.gguf

The second form first makes the directory NEW, with random weights of the shape of `talf bench
decode --shape 110m` and the tokenizer of MODEL, filled up with tokens that no text has. The
tokenizer has to be a byte-level BPE with Llama 3's way of splitting words.
"""

import json
import os
import shutil
import sys

import gguf
import numpy as np
from safetensors.numpy import save_file

SHAPES = {"110m": dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=12,
                       intermediate_size=2048, vocab_size=32000, head_dim=64)}


def read_json(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return json.load(f)


def tensors(directory):
    """Yields names and F32 arrays."""
    # Not with safetensors: NumPy has no bfloat16, whose bits are the upper half of a float32's.
    with open(os.path.join(directory, "model.safetensors"), "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(n))
        data = f.read()
    for k, t in header.items():
        if k == "__metadata__":
            continue
        raw = data[t["data_offsets"][0]:t["data_offsets"][1]]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[t["dtype"]]).astype(np.float32)
        yield k, x.reshape(t["shape"])


def random_model(shape, model, out):
    os.makedirs(out)
    config = read_json(model, "config.json") | SHAPES[shape] | {"dtype": "float32", "tie_word_embeddings": True}
    h, ffn, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    rng = np.random.default_rng(1)

    def normal(*size):
        return (rng.standard_normal(size, np.float32) / np.sqrt(size[-1])).astype(np.float32)

    weights = {"model.embed_tokens.weight": normal(vocab, h), "model.norm.weight": np.ones(h, np.float32)}
    for i in range(config["num_hidden_layers"]):
        p = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[p + name + ".weight"] = np.ones(h, np.float32)
        for name in "qkvo":
            weights[p + f"self_attn.{name}_proj.weight"] = normal(h, h)
        for name in ("gate", "up"):
            weights[p + f"mlp.{name}_proj.weight"] = normal(ffn, h)
        weights[p + "mlp.down_proj.weight"] = normal(h, ffn)
    save_file(weights, os.path.join(out, "model.safetensors"))
    tokenizer = read_json(model, "tokenizer.json")
    words = tokenizer["model"]["vocab"]
    for i in range(len(words), vocab):
        words[f"<unused{i}>"] = i
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            json.dump(value, f)
    shutil.copyfile(os.path.join(model, "generation_config.json"), os.path.join(out, "generation_config.json"))


def paired(x, heads):
    """Moves the rows of a query or key projection from halves, as transformers rotates them, to pairs."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(x.shape)


def write(model, path):
    c, t = read_json(model, "config.json"), read_json(model, "tokenizer.json")
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_key_length(c["head_dim"])
    w.add_value_length(c["head_dim"])
    w.add_rope_dimension_count(c["head_dim"])
    w.add_rope_freq_base(c.get("rope_parameters", c)["rope_theta"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    special = {a["id"] for a in t["added_tokens"] if a["special"]}
    words = sorted(t["model"]["vocab"], key=t["model"]["vocab"].get)
    kind = gguf.TokenType
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("llama-bpe")
    w.add_token_list(words)
    w.add_token_types([kind.CONTROL if i in special else kind.UNUSED if s.startswith("<unused") else kind.NORMAL
                       for i, s in enumerate(words)])
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in t["model"]["merges"]])
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    w.add_add_bos_token(True)
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
             "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    for name, x in tensors(model):
        if name in whole:
            w.add_tensor(whole[name], x)
            continue
        _, _, layer, part = name.split(".", 3)
        part = part.removesuffix(".weight")
        if part == "self_attn.q_proj":
            x = paired(x, c["num_attention_heads"])
        if part == "self_attn.k_proj":
            x = paired(x, c["num_key_value_heads"])
        w.add_tensor(f"blk.{layer}.{names[part]}.weight", np.ascontiguousarray(x))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


if __name__ == "__main__":
    args = sys.argv[1:]
    if len(args) == 5 and args[0] == "--random" and args[1] in SHAPES:
        random_model(args[1], args[2], args[3])
        args = args[3:]
    if len(args) != 2:
        sys.exit(__doc__)
    write(*args)
