"""Compares talf with transformers on random models of every architecture.

    architectures.py TALF

TALF is the binary; torch, transformers and safetensors are needed. The models have
what the test fixtures have not: windows in some layers, scaled positions, norms
with biases, tied embeddings. Each is saved by transformers, so its configuration
is spelt as the installed version writes it. talf runs 100 tokens and then 50 as a
tree; the largest difference of a logit is printed, and more than 2e-4 fails.
"""

import json
import subprocess
import sys
import tempfile
import zlib

import torch
import transformers as hf
from safetensors.torch import load_file

TOLERANCE = 2e-4

base = dict(
    vocab_size=120, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, intermediate_size=96,
    max_position_embeddings=512, attn_implementation="eager",
)
grouped = dict(base, num_key_value_heads=2)
yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64}
llama3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
alternating = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]


def linear(part):
    return {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4, "partial_rotary_factor": part}


MODELS = {
    "llama, biases": hf.LlamaConfig(**grouped, attention_bias=True, mlp_bias=True, head_dim=20),
    "llama, llama3 scaling": hf.LlamaConfig(**grouped, rope_parameters=llama3),
    "mistral, window 40": hf.MistralConfig(**grouped, sliding_window=40, head_dim=24),
    "mistral, window 1": hf.MistralConfig(**grouped, sliding_window=1),
    "mistral, no window, YaRN": hf.MistralConfig(**grouped, sliding_window=None, rope_parameters=dict(yarn)),
    "qwen2, windows from layer 2": hf.Qwen2Config(**grouped, use_sliding_window=True, sliding_window=33, max_window_layers=2),
    "qwen2, windows by layer, tied": hf.Qwen2Config(
        **grouped, use_sliding_window=True, sliding_window=12, layer_types=alternating, tie_word_embeddings=True
    ),
    "qwen2, YaRN": hf.Qwen2Config(**grouped, rope_parameters=dict(yarn, beta_fast=16.0, truncate=False)),
    "qwen3, biases, YaRN": hf.Qwen3Config(
        **grouped, head_dim=40, attention_bias=True, rope_parameters=dict(yarn, mscale=0.9, mscale_all_dim=0.5)
    ),
    "qwen3, windows from layer 1": hf.Qwen3Config(
        **grouped, head_dim=32, use_sliding_window=True, sliding_window=64, max_window_layers=1
    ),
    "gpt_neox, linear scaling": hf.GPTNeoXConfig(**base, rope_parameters=linear(0.5)),
    "gpt_neox, sequential, no biases of attention": hf.GPTNeoXConfig(
        **base, use_parallel_residual=False, attention_bias=False, rope_parameters=linear(1.0)
    ),
    "gpt_neox, tied": hf.GPTNeoXConfig(**base, tie_word_embeddings=True),
}


def randomise(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2:
                p.normal_(0, 1.5 / p.shape[1] ** 0.5)
            elif name.endswith("bias"):
                p.normal_(0, 0.3)
            else:
                p.normal_(1, 0.2)
    model.tie_weights()


def scores(talf, model, ids):
    with tempfile.TemporaryDirectory() as tmp:
        model.save_pretrained(tmp)
        tree = {"parents": [i - 1 for i in range(len(ids) - 100)], "tokens": ids[100:]}
        out = tmp + "/scores.safetensors"
        subprocess.run(
            [talf, "score", "--quiet", "--model", tmp, "--out", out],
            input=json.dumps({"ids": ids[:100], "tree": tree}) + "\n", text=True, check=True,
        )
        got = load_file(out)
        return torch.cat([got["0.logits"], got["0.tree_logits"]])


def main():
    hf.utils.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = False
    for name, config in MODELS.items():
        torch.manual_seed(zlib.crc32(name.encode()))
        model = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        randomise(model)
        ids = torch.randint(0, 120, (150,)).tolist()
        with torch.no_grad():
            want = model(torch.tensor([ids])).logits[0]
        diff = (scores(sys.argv[1], model, ids) - want).abs().max().item()
        failed |= not diff <= TOLERANCE
        print(f"{name:46s} largest logit {want.abs().max().item():5.2f}   largest difference {diff:.1e}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
