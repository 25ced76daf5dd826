#!/usr/bin/env python3
"""Loads talf's exports of a draft head elsewhere and compares the logits.

    exports.py TALF MODEL HEAD [--ids 200] [--seed 0]

TALF is the binary, MODEL the head's target. Every format is exported, read by the
forty lines of PyTorch below, which follow the papers and the readers' sources and
know nothing of talf, and run on talf's own hidden states; pytorch_model.bin goes
through torch.load with weights_only. Where the speculators library (0.1 to 0.4) is
installed, its EagleSpeculator loads its export and runs too. The largest difference
to talf's logits is printed; more than 1e-4 fails. Then each export is imported and
`talf score` must give the same bits as before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

TOLERANCE = 1e-4


def rotate(x, theta):  # x [heads, T, d]: halves, as Llama rotates
    d, n = x.shape[-1], x.shape[-2]
    inv = 1.0 / theta ** (torch.arange(0, d, 2).float() / d)
    a = torch.arange(n).float()[:, None] * inv
    cos, sin = torch.cat([a, a], -1).cos(), torch.cat([a, a], -1).sin()
    return x * cos + torch.cat([-x[..., d // 2 :], x[..., : d // 2]], -1) * sin


def eagle(conf, w, embed, ids, features):
    """Hidden states [T, H] of an EAGLE head at ids[1:], given those before them."""
    w = {k: v.float() for k, v in w.items()}
    p = "layers.0."
    x = torch.cat([embed[ids[1:]], features[:-1]], -1) @ w["fc.weight"].T
    x = x + w.get("fc.bias", 0.0)
    heads, kv, d = conf["num_attention_heads"], conf["num_key_value_heads"], conf["head_dim"]
    n = len(ids) - 1
    q, k, v = (
        (x @ w[p + f"self_attn.{c}_proj.weight"].T).view(n, h, d).transpose(0, 1)
        for c, h in (("q", heads), ("k", kv), ("v", kv))
    )
    q, k = rotate(q, conf["rope_theta"]), rotate(k, conf["rope_theta"])
    k, v = k.repeat_interleave(heads // kv, 0), v.repeat_interleave(heads // kv, 0)
    a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1).reshape(n, heads * d)
    x = x + a @ w[p + "self_attn.o_proj.weight"].T
    y = F.rms_norm(x, (x.shape[-1],), w[p + "post_attention_layernorm.weight"], conf["rms_norm_eps"])
    y = F.silu(y @ w[p + "mlp.gate_proj.weight"].T) * (y @ w[p + "mlp.up_proj.weight"].T)
    return x + y @ w[p + "mlp.down_proj.weight"].T


def main():
    p = argparse.ArgumentParser()
    for name in ("talf", "model", "head"):
        p.add_argument(name)
    p.add_argument("--ids", type=int, default=200)
    p.add_argument("--seed", type=int, default=0)
    o = p.parse_args()
    torch.set_num_threads(1)
    target = load_file(os.path.join(o.model, "model.safetensors"))
    embed = target["model.embed_tokens.weight"].float()
    lm_head = target.get("lm_head.weight", target["model.embed_tokens.weight"]).float()
    ids = torch.randint(0, embed.shape[0], (o.ids,), generator=torch.Generator().manual_seed(o.seed))
    failed = False

    def talf(*args, **kw):
        return subprocess.run([o.talf, *args], check=True, capture_output=True, text=True, **kw).stdout

    def score(head, out):
        talf("score", "--model", o.model, "--head", head, "--out", out, input=json.dumps({"ids": ids.tolist()}))
        return load_file(out)

    with tempfile.TemporaryDirectory() as tmp:
        mine = score(o.head, f"{tmp}/score.safetensors")
        features, want = mine["0.hidden"], mine["0.head_logits"]

        def report(what, logits):
            nonlocal failed
            worst = (logits - want).abs().max().item()
            failed = failed or not worst <= TOLERANCE
            print(f"{what:44} largest difference of a logit {worst:.2e} (they reach {want.abs().max():.1f})")

        for fmt in ("eagle", "sglang", "vllm", "speculators"):
            out = f"{tmp}/{fmt}"
            talf("export", "--head", o.head, "--format", fmt, "--bin", "--model", o.model, "--out", out)
            conf = json.load(open(f"{out}/config.json"))
            for name in ("model.safetensors", "pytorch_model.bin"):
                path = f"{out}/{name}"
                w = load_file(path) if name.endswith("s") else torch.load(path, weights_only=True)
                c = conf
                if fmt == "speculators":
                    c = conf["transformer_layer_config"]
                    w = {k.replace("fusion_fc.", "fc.").replace("transformer.", "layers.0."): v for k, v in w.items()}
                e = w["embed_tokens.weight"].float() if "embed_tokens.weight" in w else embed
                with torch.no_grad():
                    report(f"{fmt}, {name}", eagle(c, w, e, ids, features) @ lm_head.T)
            talf("import", "--head", out, "--model", o.model, "--out", f"{tmp}/{fmt}-back")
            os.remove(f"{out}/model.safetensors")
            talf("import", "--head", out, "--model", o.model, "--out", f"{tmp}/{fmt}-bin")
            for back in ("back", "bin"):
                again = score(f"{tmp}/{fmt}-{back}", f"{tmp}/again.safetensors")["0.head_logits"]
                if not torch.equal(again, want):
                    failed = True
                    print(f"{fmt}-{back}: imported again, it gives other bits")
        try:
            from speculators.models.eagle import EagleSpeculator
        except ImportError as e:
            print("the speculators library's EagleSpeculator is not here:", e)
        else:
            from importlib.metadata import version

            from transformers import AutoModelForCausalLM

            out = f"{tmp}/speculators-again"
            talf("export", "--head", o.head, "--format", "speculators", "--model", o.model, "--out", out)
            verifier = AutoModelForCausalLM.from_pretrained(o.model, torch_dtype=torch.float32)
            m = EagleSpeculator.from_pretrained(out, verifier=verifier, verifier_attachment_mode="train_only", torch_dtype=torch.float32)
            m.config.transformer_layer_config._attn_implementation = "eager"  # from_pretrained leaves it open
            mask = torch.full((1, 1, len(ids) - 1, len(ids) - 1), float("-inf")).triu(1)
            with torch.no_grad():
                logits = m(ids[None, 1:], features[None, :-1], attention_mask=mask, return_dict=False)
            report(f"speculators {version('speculators')}, EagleSpeculator", logits[0])
    sys.exit(failed)


main()
