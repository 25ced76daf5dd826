#!/usr/bin/env python3
"""The speculators library and talf with one EAGLE-3 head: the same trees and the same tau.

    speculators_eagle3.py TALF MODEL HEAD PROMPTS [--prompts 10] [--tokens 64]

TALF is the binary, MODEL a target of at least seven layers with a tokenizer, HEAD an EAGLE-3 head of
talf's for it, PROMPTS a file of EAGLE's questions ("turns"). On a CPU:

    python3.11 -m venv .cache/speculators
    .cache/speculators/bin/pip install speculators==0.9.0

Two heads are compared: HEAD, as `talf export --format speculators` writes it, and one whose random
weights Eagle3DraftModel draws and saves. The library has no tree search, so EAGLE-2's is written here, over
the library's fc, layers, norms and LM head. In every round of talf's decoding, it grows the tree
from the same text: nodes, parents and their order must be equal, and as many nodes must follow
what the target says. Scores closer than 1e-5 may be ordered either way, as in eagle.py.
"""

import argparse
import os
import sys
import tempfile

import torch
from traces import DEPTH, K, TOTAL, paths, read_prompts, talf, talf_rounds

TIE = 1e-5


class Drafter:
    """EAGLE-2's trees by an Eagle3DraftModel."""

    def __init__(self, model, target, taps):
        self.m, self.target, self.taps = model, target, taps
        self.ids = torch.arange(len(model.d2t)) + model.d2t if model.d2t is not None else None

    def step(self, tokens, hidden, position, mask, cache):
        """The layer's output [n, H] for n tokens with their hidden states, and log q [n, Vd]."""
        from_ = cache.get_seq_length()
        x = torch.cat([self.m.embed_tokens(tokens), hidden], -1)[None]
        at = position[None]
        for layer in self.m.layers:
            x = layer(x, attention_mask=mask[None, None], position_ids=at, past_key_values=cache,
                      cache_position=torch.arange(from_, from_ + len(tokens)), position_embeddings=self.m.rotary_emb(x, at))
        q = self.m.lm_head(self.m.norm(x))
        return (self.m.norm(x) if self.m.config.norm_output else x)[0], torch.log_softmax(q[0], -1)

    @torch.no_grad()
    def grow(self, text):
        """Tokens, parents and scores of the tree below the last token of text."""
        from transformers import DynamicCache

        taps = self.target(torch.tensor([text[:-1]]), output_hidden_states=True, use_cache=False).hidden_states
        states = [taps[j][0] for j in self.taps]
        if self.m.fc_norm is not None:
            states = [norm(x) for norm, x in zip(self.m.fc_norm, states)]
        fused = torch.cat(states, -1)
        if self.m.input_norm is not None:
            fused = self.m.input_norm(fused)
        n, cache = len(text) - 1, DynamicCache()
        low = torch.finfo(torch.float32).min
        hidden, q = self.step(torch.tensor(text[1:]), self.m.fc(fused), torch.arange(n), torch.full((n, n), low).triu(1), cache)
        # All candidates in the order in which they were found, each with its parent among them.
        tokens, parents, scores = [], [], []
        hidden, q, seen, level, base = hidden[-1:], q[-1:], [[]], [-1], torch.zeros(1)
        for depth in range(DEPTH + 1):
            top = q.topk(K, -1)
            found = len(tokens)
            ids = self.ids[top.indices] if self.ids is not None else top.indices
            total = base[:, None] + top.values
            for row, parent in enumerate(level):
                tokens += ids[row].tolist()
                parents += [parent] * K
                scores += total[row].tolist()
            if depth == DEPTH:
                break
            best = total.flatten().topk(K)
            rows = (best.indices // K).tolist()
            level = [found + i for i in best.indices.tolist()]
            base = best.values
            at = cache.get_seq_length()
            seen = [seen[r] + [at + i] for i, r in enumerate(rows)]
            mask = torch.full((K, at + K), low)
            mask[:, :n] = 0
            for i, keys in enumerate(seen):
                mask[i, keys] = 0
            hidden, q = self.step(torch.tensor([tokens[i] for i in level]), hidden[rows], torch.full((K,), n + depth), mask, cache)
        keep = torch.tensor(scores).topk(TOTAL - 1).indices.sort().values.tolist()
        place = {-1: 0} | {c: i + 1 for i, c in enumerate(keep)}
        every = [0.0] + scores
        return [text[-1]] + [tokens[c] for c in keep], [-1] + [place[parents[c]] for c in keep], self.all(text, tokens, parents, every)

    @staticmethod
    def all(text, tokens, parents, scores):
        """Score of every candidate by its path, those that were not kept too."""
        out = {}
        walk = []
        for i, t in enumerate(tokens):
            walk.append((walk[parents[i]] if parents[i] >= 0 else (text[-1],)) + (t,))
            out[walk[-1]] = scores[i + 1]
        return out


def compare(o, name, drafter, head, tok, prompts, tmp):
    same = nodes = ties = passes = mine = theirs = 0
    ok = True
    for number, prompt in enumerate(prompts):
        ids = tok(prompt)["input_ids"]
        rounds = talf_rounds(o, head, prompt, tmp)
        text = list(ids)
        for r in rounds:
            text += [r[1][n] for n in r[3][1:]] + [r[4]]
        for pos, tokens, parents, path, _ in rounds:
            if pos + 1 >= len(ids) + o.tokens:
                break
            got = drafter.grow(text[: pos + 1])
            a, b = paths(tokens, parents), paths(*got[:2])
            odd = sorted(set(a) ^ set(b))
            if (tokens, parents) == got[:2]:
                same, nodes = same + 1, nodes + len(tokens)
            elif len(a) == len(b) and len(odd) <= 2 and (not odd or all(x in got[2] for x in odd) and abs(got[2][odd[0]] - got[2][odd[1]]) < TIE):
                ties += 1
            else:
                ok = False
                print(f"{name}, prompt {number}, root {pos}: only one drafts {odd}; {len(a)} and {len(b)} nodes")
            follows = max(len(x) for x in b if list(x) == text[pos : pos + len(x)])
            passes, mine, theirs = passes + 1, mine + len(path), theirs + follows
    print(f"{name}: {same} of {same + ties} trees are equal node for node ({nodes} nodes), {ties} ties; "
          f"tau {mine / passes:.5f} (talf), {theirs / passes:.5f} (speculators) over {passes} passes on {len(prompts)} prompts")
    return ok and same > 0 and mine == theirs


def main():
    p = argparse.ArgumentParser()
    for name in ("talf", "model", "head", "prompts_file"):
        p.add_argument(name)
    p.add_argument("--prompts", type=int, default=10)
    p.add_argument("--tokens", type=int, default=64)
    o = p.parse_args()
    from safetensors.torch import load_file
    from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tok = AutoTokenizer.from_pretrained(o.model)
    target = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32).eval()
    prompts = read_prompts(o)
    ok = True
    with tempfile.TemporaryDirectory() as tmp:
        out = f"{tmp}/trained"
        talf(o, "export", "--head", o.head, "--format", "speculators", "--model", o.model, "--out", out)
        config = Eagle3SpeculatorConfig.from_pretrained(out)
        config.transformer_layer_config._attn_implementation = "eager"
        torch.manual_seed(1)
        m = Eagle3DraftModel(config)
        for w in m.parameters():
            if w.dim() > 1:
                torch.nn.init.normal_(w, std=w.shape[1] ** -0.5)
        m.embed_tokens.weight.data = target.get_input_embeddings().weight.data.clone()
        if m.d2t is not None:
            ids = torch.randperm(config.transformer_layer_config.vocab_size)[: config.draft_vocab_size].sort().values
            m.d2t.copy_(ids - torch.arange(len(ids)))
            m.t2d.zero_()
            m.t2d[ids] = True
        m.save_pretrained(f"{tmp}/random")
        for name, head in (("trained", o.head), ("random", f"{tmp}/random")):
            config = Eagle3SpeculatorConfig.from_pretrained(f"{tmp}/{name}")
            config.transformer_layer_config._attn_implementation = "eager"
            m = Eagle3DraftModel.from_pretrained(f"{tmp}/{name}", config=config).eval()
            file, mine = load_file(f"{tmp}/{name}/model.safetensors"), m.state_dict()
            if "embed_tokens.weight" not in file:
                # Not load_verifier_weights: it prepares training, and replaces the LM head by rows of the target's.
                m.embed_tokens.weight.data = target.get_input_embeddings().weight.data.clone()
            bad = [k for k, w in file.items() if k not in mine or not torch.equal(mine[k].to(w.dtype), w)]
            bad += [k for k in mine if k not in file and k != "embed_tokens.weight" and not k.startswith("verifier_")]
            if bad:
                ok = False
                print(f"{name}: not loaded as it stands in the file: {bad}")
            ok = compare(o, name, Drafter(m, target, m.target_layer_ids), head, tok, prompts, tmp) and ok
    sys.exit(not ok)


if __name__ == "__main__":
    main()
