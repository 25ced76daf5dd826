"""Measures Hugging Face transformers on models of random weights, of the shapes that
talf's bundle has: tokens a second of greedy decoding, and of a prompt of 2048 tokens
the operations a second, two for each weight and token but the embedding's."""

import json
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SHAPES = {
    "0.5B": dict(vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, intermediate_size=4864, tie_word_embeddings=True),
    "1B": dict(vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192, tie_word_embeddings=True),
    "8B": dict(vocab_size=128256, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, intermediate_size=14336, tie_word_embeddings=False),
}


def best(reps, f):
    """Returns the least seconds of reps runs after one that warms up."""
    least = float("inf")
    for i in range(reps + 1):
        torch.cuda.synchronize()
        since = time.perf_counter()
        f()
        torch.cuda.synchronize()
        if i > 0:
            least = min(least, time.perf_counter() - since)
    return least


@torch.inference_mode()
def measure(shape):
    config = LlamaConfig(max_position_embeddings=4096, eos_token_id=None, pad_token_id=0, **shape)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(1, 1000, (1, 256), device="cuda")
    tokens = 64

    def decode(n):
        return best(3, lambda: model.generate(prompt, max_new_tokens=n, min_new_tokens=n, do_sample=False))

    # What the prompt costs is in both.
    speed = tokens / (decode(tokens + 1) - decode(1))
    long = torch.randint(1, 1000, (1, 2048), device="cuda")
    seconds = best(3, lambda: model(long, logits_to_keep=1))
    weights = sum(p.numel() for p in model.model.layers.parameters())
    del model
    torch.cuda.empty_cache()
    return {"tokens_per_second": speed, "prefill_flops": 2 * weights * 2048 / seconds}


def main():
    out = {}
    for name, shape in SHAPES.items():
        out[name] = measure(shape)
        print(name, out[name], file=sys.stderr)
        with open(sys.argv[1], "w") as f:
            json.dump(out, f)


if __name__ == "__main__":
    main()
