"""Measures PyTorch and Hugging Face transformers on the shapes that talf's bundle has,
with random weights: tokens a second of greedy decoding, and of a prompt of 2048 tokens
the operations a second, two for each weight and token but the embedding's; the
operations a second of one large product; and positions a second of training an EAGLE
head with torch.compile, in float32 and in bfloat16.

Usage: torch_speed.py [--dry-run] OUT.json
"""

import json
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

DRY = "--dry-run" in sys.argv[1:]
DEVICE = "cpu" if DRY else "cuda"
if DRY:
    SHAPES = {"tiny": dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=32, tie_word_embeddings=True)}
    CONTEXT, TOKENS, PROMPT, REPS, LENGTH, MATMUL = 4, 2, 8, 1, 8, 64
else:
    SHAPES = {
        "0.5B": dict(vocab_size=151936, hidden_size=896, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2, intermediate_size=4864, tie_word_embeddings=True),
        "1B": dict(vocab_size=128256, hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192, tie_word_embeddings=True),
        "8B": dict(vocab_size=128256, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, intermediate_size=14336, tie_word_embeddings=False),
    }
    CONTEXT, TOKENS, PROMPT, REPS, LENGTH, MATMUL = 256, 64, 2048, 3, 1024, 8192
LABELS = 8  # likely tokens that a position has as its label


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def best(reps, f):
    """Returns the least seconds of reps runs after one that warms up."""
    least = float("inf")
    for i in range(reps + 1):
        wait()
        since = time.perf_counter()
        f()
        wait()
        if i > 0:
            least = min(least, time.perf_counter() - since)
    return least


@torch.inference_mode()
def transformers_speed(shape):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(max_position_embeddings=4096, eos_token_id=None, pad_token_id=0, **shape)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device(DEVICE):
            model = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(torch.float32)
    prompt = torch.randint(1, shape["vocab_size"], (1, CONTEXT), device=DEVICE)

    def decode(n):
        return best(REPS, lambda: model.generate(prompt, max_new_tokens=n, min_new_tokens=n, do_sample=False))

    # What the prompt costs is in both.
    speed = TOKENS / max(decode(TOKENS + 1) - decode(1), 1e-9)
    long = torch.randint(1, shape["vocab_size"], (1, PROMPT), device=DEVICE)
    seconds = best(REPS, lambda: model(long, logits_to_keep=1))
    weights = sum(p.numel() for p in model.model.layers.parameters())
    return {"tokens_per_second": speed, "prefill_flops": 2 * weights * PROMPT / seconds}


@torch.inference_mode()
def matmul_speed():
    a, b = (torch.randn(MATMUL, MATMUL, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    return 2 * MATMUL**3 / best(4 * REPS, lambda: a @ b)


class Norm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)


class Head(nn.Module):
    """An EAGLE head: fc over an embedding and a feature, and one Llama layer whose
    input is not normalised."""

    def __init__(self, hidden_size, num_attention_heads, num_key_value_heads, intermediate_size, **_):
        super().__init__()
        h, self.heads, self.kv, self.dim = hidden_size, num_attention_heads, num_key_value_heads, hidden_size // num_attention_heads

        def linear(a, b):
            return nn.Linear(a, b, bias=False)

        self.fc = linear(2 * h, h)
        self.q, self.k, self.v, self.o = linear(h, h), linear(h, self.kv * self.dim), linear(h, self.kv * self.dim), linear(h, h)
        self.norm, self.gate, self.up, self.down = Norm(h), linear(h, intermediate_size), linear(h, intermediate_size), linear(intermediate_size, h)

    def forward(self, embedded, features, cos, sin):
        x = self.fc(torch.cat([embedded, features], -1))
        n = x.shape[1]

        def split(y, heads):
            return y.view(1, n, heads, self.dim).transpose(1, 2)

        def turn(y):
            a, b = y.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(y.dtype)

        q, k, v = turn(split(self.q(x), self.heads)), turn(split(self.k(x), self.kv)), split(self.v(x), self.kv)
        att = F.scaled_dot_product_attention(q, k.to(v.dtype), v, is_causal=True, enable_gqa=True)
        x = x + self.o(att.transpose(1, 2).reshape(1, n, -1))
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def training_speed(shape, half):
    """Returns positions a second of steps as talf's loss eagle makes them: cross-entropy
    against the labels' tokens through the frozen LM head, a tenth of it, and smooth L1
    against the next feature."""
    torch.manual_seed(1)
    vocab, h = shape["vocab_size"], shape["hidden_size"]
    with torch.device(DEVICE):
        head, norm = Head(**shape), Norm(h)
        table = torch.randn(vocab, h) / h**0.5
        lm = torch.randn(vocab, h) / h**0.5
        ids = torch.randint(0, vocab, (1, LENGTH))
        features, after = torch.randn(1, LENGTH, h), torch.randn(1, LENGTH, h)
        labels = torch.randint(0, vocab, (1, LENGTH, LABELS))
        probs = torch.full((1, LENGTH, LABELS), 1 / LABELS)
        dim = h // shape["num_attention_heads"]
        angles = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(dim // 2) * 2 / dim)[None, :]
        cos, sin = angles.cos(), angles.sin()
    if half:
        table, lm = table.bfloat16(), lm.bfloat16()
    norm.requires_grad_(False)
    optimiser = torch.optim.AdamW(head.parameters(), lr=1e-4, fused=not DRY)

    def loss():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
            x = head(F.embedding(ids, table), features, cos, sin)
            logits = F.linear(norm(x), lm)
        logits = logits.float()
        cross = (torch.logsumexp(logits, -1) - (logits.gather(-1, labels) * probs).sum(-1)).mean()
        return 0.1 * cross + F.smooth_l1_loss(x.float(), after)

    fast = loss if DRY else torch.compile(loss)

    def step():
        optimiser.zero_grad(set_to_none=True)
        fast().backward()
        nn.utils.clip_grad_norm_(head.parameters(), 0.5)
        optimiser.step()

    for _ in range(2):
        step()
    return LENGTH / best(4 * REPS, step)


def main():
    names = [a for a in sys.argv[1:] if a != "--dry-run"]
    if len(names) != 1:
        sys.exit(__doc__)
    out, failed = {}, False
    for name, shape in SHAPES.items():
        found = out.setdefault(name, {})

        def measure(what, f, found=found, name=name):
            nonlocal failed
            try:
                found.update(f())
            except Exception as e:  # out of memory, or another version's interface
                failed = True
                print(name, what, "failed:", repr(e), file=sys.stderr)
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            print(name, what, found, file=sys.stderr)
            with open(names[0], "w") as f:
                json.dump(out, f)

        def training(shape=shape):
            return {"training_positions_per_second": {"f32": training_speed(shape, False), "bf16": training_speed(shape, True)}}

        measure("transformers", lambda shape=shape: transformers_speed(shape))
        measure("matmul", lambda: {"matmul_flops": matmul_speed()})
        measure("training", training)
    sys.exit(failed)


if __name__ == "__main__":
    main()
