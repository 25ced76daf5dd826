"""HASS (Zhang et al. 2025, §3) with automatic differentiation in float64.

Every pass is written out over all positions, the first ones included: nothing is
shared between passes or left out because it repeats. The loss mask begins at the first
position that can be learnt, so that the weights of repeated passes show.

Writes config.json, model.safetensors (the head), batch.safetensors and
golden.safetensors (losses and gradients) beside this file. Needs jax and safetensors;
made with jax 0.10.2 and Python 3.
"""

import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

jax.config.update("jax_enable_x64", True)

HERE = os.path.dirname(os.path.abspath(__file__))
H, V, HEADS, KV, FFN, EPS, THETA = 8, 12, 2, 1, 12, 1e-6, 10000.0
D = H // HEADS
PASSES, TOP = 3, 3
W_REG, W_CLS, W_TOPK = 1.0, 0.1, 1.0
# Token t of a sequence is learnt if its mask is 1; the head predicts tokens from 2 on.
MASKS = [[0, 0, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 0], [0, 0, 1, 0, 1]]

rng = np.random.default_rng(14)


def draw(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


head = {
    "fc.weight": draw(H, 2 * H, scale=0.3),
    "fc.bias": draw(H, scale=0.1),
    "layers.0.self_attn.q_proj.weight": draw(HEADS * D, H, scale=0.5),
    "layers.0.self_attn.k_proj.weight": draw(KV * D, H, scale=0.5),
    "layers.0.self_attn.v_proj.weight": draw(KV * D, H, scale=0.5),
    "layers.0.self_attn.o_proj.weight": draw(H, HEADS * D, scale=0.5),
    "layers.0.post_attention_layernorm.weight": 1 + draw(H, scale=0.1),
    "layers.0.mlp.gate_proj.weight": draw(FFN, H, scale=0.5),
    "layers.0.mlp.up_proj.weight": draw(FFN, H, scale=0.5),
    "layers.0.mlp.down_proj.weight": draw(H, FFN, scale=0.5),
}
embed, lm_head = draw(V, H), draw(V, H, scale=0.7)
tokens = [rng.integers(0, V, len(m)).astype(np.int32) for m in MASKS]
feats = [draw(len(m), H) for m in MASKS]
labels = []  # [T][V]: the target's distribution of the token after each one
for m in MASKS:
    e = np.exp(draw(len(m), V, scale=1.5))
    labels.append((e / e.sum(1, keepdims=True)).astype(np.float32))


def rope(x, positions):  # x [n][heads][D]
    freq = THETA ** (-np.arange(0, D, 2) / D)
    a = np.outer(positions, freq)
    c = jnp.asarray(np.concatenate([np.cos(a), np.cos(a)], 1))[:, None, :]
    s = jnp.asarray(np.concatenate([np.sin(a), np.sin(a)], 1))[:, None, :]
    rotated = jnp.concatenate([-x[..., D // 2 :], x[..., : D // 2]], -1)
    return x * c + rotated * s


def passes(w, ids, f, detach):
    """The outputs f̂ [n][H] of every pass. Position i takes (f_i, x_{i+1})."""
    n = len(ids) - 1
    at = np.arange(n)
    outs, keys, values = [], [], []
    for j in range(PASSES):
        fed = f[:n]
        if j > 0:  # the pass before, one position earlier; nothing lies before the first
            before = jax.lax.stop_gradient(outs[-1]) if detach else outs[-1]
            fed = jnp.concatenate([f[:1], before[:-1]])
        x = jnp.concatenate([jnp.asarray(embed, jnp.float64)[ids[1:]], fed], 1) @ w["fc.weight"].T + w["fc.bias"]
        q = rope((x @ w["layers.0.self_attn.q_proj.weight"].T).reshape(n, HEADS, D), at)
        keys.append(rope((x @ w["layers.0.self_attn.k_proj.weight"].T).reshape(n, KV, D), at))
        values.append((x @ w["layers.0.self_attn.v_proj.weight"].T).reshape(n, KV, D))
        rows = []
        for i in range(n):
            # The key of position m is that of pass j−(i−m), but of no pass before the first.
            of = [max(0, j - (i - m)) for m in range(i + 1)]
            k = jnp.stack([keys[p][m] for m, p in enumerate(of)])  # [i+1][KV][D]
            v = jnp.stack([values[p][m] for m, p in enumerate(of)])
            heads = []
            for h in range(HEADS):
                g = h // (HEADS // KV)
                a = jax.nn.softmax(k[:, g] @ q[i, h] / math.sqrt(D))
                heads.append(a @ v[:, g])
            rows.append(jnp.concatenate(heads))
        y = x + jnp.stack(rows) @ w["layers.0.self_attn.o_proj.weight"].T
        m = y / jnp.sqrt((y * y).mean(1, keepdims=True) + EPS) * w["layers.0.post_attention_layernorm.weight"]
        act = jax.nn.silu(m @ w["layers.0.mlp.gate_proj.weight"].T) * (m @ w["layers.0.mlp.up_proj.weight"].T)
        outs.append(y + act @ w["layers.0.mlp.down_proj.weight"].T)
    return outs


def loss(w, detach):
    """The mean over positions that count, and each pass's part of it."""
    parts = [0.0] * PASSES
    count = 0
    for ids, f, p, mask in zip(tokens, feats, labels, MASKS):
        f, p = jnp.asarray(f, jnp.float64), jnp.asarray(p, jnp.float64)
        outs = passes(w, ids, f, detach)
        for i in range(len(ids) - 2):
            if not mask[i + 2]:
                continue
            count += 1
            top = np.argsort(-np.asarray(p[i + 1]), kind="stable")[:TOP]
            for j, y in enumerate(outs):
                d = jnp.abs(y[i] - f[i + 1])
                reg = jnp.where(d < 1, 0.5 * d * d, d - 0.5).mean()
                logq = jax.nn.log_softmax(jnp.asarray(lm_head, jnp.float64) @ y[i])
                parts[j] += W_REG * reg - W_CLS * (p[i + 1] @ logq) - W_TOPK * (p[i + 1][top] @ logq[top])
    parts = jnp.stack(parts) / count
    return parts.sum(), parts


def main():
    golden = {}
    w = {k: jnp.asarray(v, jnp.float64) for k, v in head.items()}
    for name, detach in ("detach", True), ("flow", False):
        (_, parts), grads = jax.value_and_grad(loss, has_aux=True)(w, detach)
        golden[f"{name}.passes"] = np.asarray(parts)
        for k, g in grads.items():
            golden[f"{name}.{k}"] = np.asarray(g)
    save_file(golden, os.path.join(HERE, "golden.safetensors"))
    save_file({**head, "embed_tokens.weight": embed}, os.path.join(HERE, "model.safetensors"))
    batch = {"lm_head": lm_head}
    for s, m in enumerate(MASKS):
        batch[f"tokens.{s}"], batch[f"mask.{s}"] = tokens[s], np.asarray(m, np.int32)
        batch[f"features.{s}"], batch[f"labels.{s}"] = feats[s], labels[s]
    save_file(batch, os.path.join(HERE, "batch.safetensors"))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": H, "vocab_size": V, "num_hidden_layers": 1, "num_attention_heads": HEADS,
        "num_key_value_heads": KV, "intermediate_size": FFN, "max_position_embeddings": 64,
        "rms_norm_eps": EPS, "rope_theta": THETA, "rope_scaling": None, "tie_word_embeddings": False,
    }
    with open(os.path.join(HERE, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
        f.write("\n")


main()
