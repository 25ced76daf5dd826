#!/usr/bin/env python3
"""EAGLE's own code and talf with one EAGLE-3 head: the same trees, the same tau, the same text.

    eagle.py TALF EAGLE MODEL HEAD PROMPTS [--prompts 10] [--tokens 64]

TALF is the binary, EAGLE a checkout of SafeAILab/EAGLE at cb7e084, MODEL a Llama target of at least
seven layers with a tokenizer, HEAD an EAGLE-3 head of talf's for it, PROMPTS a file of EAGLE's
questions ("turns"). On a CPU, no GPU is needed, and EAGLE is not patched:

    python3.11 -m venv .cache/eagle
    .cache/eagle/bin/pip install torch==2.15.0 transformers==4.53.1 safetensors accelerate

Two heads are compared: HEAD, as `talf export --format eagle` writes it, and one whose random weights
EAGLE's own class draws and saves, as talf reads it. For each, every tensor must be loaded as it
stands in the file, and in every round both must draft the same tree, node for node and in order, from the
same root, and accept as many nodes.

Scores that float32 cannot tell apart may be ordered either way. A round in which each tree has one
node that the other lacks, and EAGLE's scores of these two differ by less than 1e-5, counts as a
tie; the number of ties is printed. Anything else that differs fails.

EAGLE roots its first tree at the first new token, talf at the last of the prompt. A tree is a
function of the text before it, so EAGLE is given the prompt without its last token, and that token as
the first.
"""

import argparse
import json
import os
import sys
import tempfile

import torch
from safetensors import safe_open
from traces import DEPTH, K, TOTAL, paths, read_prompts, talf, talf_rounds

TIE = 1e-5


def eagle_rounds(ea, ids, o):
    """The same of EAGLE's eagenerate."""
    from eagle.model import ea_model

    rounds, token = [], torch.tensor([[ids[-1]]])
    evaluate, initialize, grow = ea_model.evaluate_posterior, ea_model.initialize_tree, ea.ea_layer.topK_genrate

    def first(input_ids, model, past_key_values, processor):
        outputs, orig, _ = model(input_ids, past_key_values=past_key_values, output_orig=True)
        taps = torch.cat(outputs["hidden_states"], dim=-1)
        tree = model.ea_layer.topK_genrate(taps, torch.cat((input_ids, token), 1), model.base_model.lm_head, processor)
        return *tree, orig, taps, token

    def draft(hidden, input_ids, head, logits_processor=None):
        tree = grow(hidden, input_ids, head, logits_processor)
        ancestors = tree[2][0, 0].bool()
        depth = ancestors.sum(1).tolist()
        parents = [-1]
        for n in range(1, len(ancestors)):  # the deepest of the others that it sees
            parents.append(max((a for a in range(n) if ancestors[n, a]), key=depth.__getitem__))
        rounds.append([input_ids.shape[1] - 1, tree[0][0].tolist(), parents, None, None, tree[1]])
        return tree

    def judge(logits, candidates, processor):
        best, accepted, sample = evaluate(logits, candidates, processor)
        r = rounds[-1]
        r[3:] = [r[5][best, : accepted + 1].tolist(), int(sample.argmax())]
        return best, accepted, sample

    ea_model.evaluate_posterior, ea_model.initialize_tree, ea.ea_layer.topK_genrate = judge, first, draft
    try:
        ea.eagenerate(torch.tensor([ids[:-1]]), temperature=0.0, max_new_tokens=o.tokens, max_length=1024)
    finally:
        ea_model.evaluate_posterior, ea_model.initialize_tree = evaluate, initialize
        del ea.ea_layer.topK_genrate
    return [r for r in rounds if r[3] is not None]  # the last tree is drafted and not judged


@torch.no_grad()
def score(ea, text, path):
    """Log-probability that EAGLE's head gives to path after text."""
    layer, total = ea.ea_layer, 0.0
    ea.base_model.model.tree_mask = None
    hidden = ea.base_model.model(input_ids=torch.tensor([text[:-1]]), use_cache=False)["hidden_states"]
    layer.reset()
    out, kept = layer(torch.cat(hidden, dim=-1), input_ids=torch.tensor([text[1:]]), use_cache=True)
    ids = (torch.arange(len(layer.d2t)) + layer.d2t).tolist() if hasattr(layer, "d2t") else list(range(layer.vocab_size))
    for i, token in enumerate(path):
        total += float(torch.log_softmax(layer.lm_head(layer.norm(out[0, -1])).double(), -1)[ids.index(token)])
        at = torch.tensor([len(text) - 1 + i])
        out, kept = layer(out[:, -1:], input_ids=torch.tensor([[token]]), past_key_values=kept, position_ids=at, use_cache=True)
    return total


def compare(o, name, ea, head, tok, prompts, tmp):
    """Whether talf and EAGLE agree on every prompt; a line says so."""
    same = nodes = ties = passes = mine = theirs = 0
    ok = True
    for number, prompt in enumerate(prompts):
        ids = tok(prompt)["input_ids"]
        text = list(ids)
        for g, w in zip(talf_rounds(o, head, prompt, tmp), eagle_rounds(ea, ids, o)):
            a, b = paths(*g[1:3]), paths(*w[1:3])
            odd = sorted(set(a) ^ set(b))
            if g[:3] == w[:3]:
                same, nodes = same + 1, nodes + len(a)
            elif g[0] == w[0] and len(a) == len(b) and len(odd) <= 2 and (not odd or abs(score(ea, text, odd[0][1:]) - score(ea, text, odd[1][1:])) < TIE):
                ties += 1
            else:
                ok = False
                print(f"{name}, prompt {number}, root {w[0]}: only one drafts {odd}; roots {g[0]} and {w[0]}, {len(a)} and {len(b)} nodes")
            passes, mine, theirs = passes + 1, mine + len(g[3]), theirs + len(w[3])
            new = [a[n] for n in g[3]] + [g[4]]
            if new != [b[n] for n in w[3]] + [w[4]]:
                ok = False
                print(f"{name}, prompt {number}, root {w[0]}: talf accepts {new}, EAGLE {[b[n] for n in w[3]] + [w[4]]}")
                break
            text += [g[1][n] for n in g[3][1:]] + [g[4]]
            if len(text) >= len(ids) + o.tokens:
                break
    print(f"{name}: {same} of {same + ties} trees are equal node for node ({nodes} nodes), {ties} ties; "
          f"tau {mine / passes:.5f} (talf), {theirs / passes:.5f} (EAGLE) over {passes} passes on {len(prompts)} prompts")
    return ok and same > 0 and mine == theirs


def loaded(ea, path):
    """Whether every tensor of the file is EAGLE's, bit for bit, and no other of EAGLE's is left as it was."""
    layer = ea.ea_layer.state_dict()
    with safe_open(path, "pt") as f:
        file = {name: f.get_tensor(name) for name in f.keys()}
    for name in file.keys() | layer.keys() - {"embed_tokens.weight"}:
        if name not in file or name not in layer or not torch.equal(layer[name], file[name].to(layer[name].dtype)):
            print(f"{name}: not loaded as it stands in the file")
            return False
    return torch.equal(layer["embed_tokens.weight"], ea.base_model.model.embed_tokens.weight.float())


def random_head(EConfig, Model, config, out, seed):
    """Saves what EAGLE's own class draws, as its trainer does: a state dictionary and config.json."""
    torch.manual_seed(seed)
    c = EConfig.from_dict(json.load(open(config)))
    m = Model(c, load_emb=False)
    if c.draft_vocab_size != c.vocab_size:
        ids = torch.randperm(c.vocab_size)[: c.draft_vocab_size].sort().values
        m.d2t.copy_(ids - torch.arange(c.draft_vocab_size))
        m.t2d[ids] = True
    os.makedirs(out)
    torch.save({k: v for k, v in m.state_dict().items() if k != "embed_tokens.weight"}, f"{out}/pytorch_model.bin")
    keep = json.load(open(config))
    del keep["target_hidden_size"]
    keep["architectures"] = ["LlamaForCausalLM"]
    json.dump(keep, open(f"{out}/config.json", "w"))


def main():
    p = argparse.ArgumentParser()
    for name in ("talf", "eagle", "model", "head", "prompts_file"):
        p.add_argument(name)
    p.add_argument("--prompts", type=int, default=10)
    p.add_argument("--tokens", type=int, default=64)
    o = p.parse_args()
    sys.path.insert(0, o.eagle)
    from eagle.model.cnets import Model
    from eagle.model.configs import EConfig
    from eagle.model.ea_model import EaModel
    from transformers import AutoTokenizer

    torch.set_num_threads(1)
    tok = AutoTokenizer.from_pretrained(o.model)
    prompts = read_prompts(o)
    ok = True
    with tempfile.TemporaryDirectory() as tmp:
        export = lambda head, out: talf(o, "export", "--head", head, "--format", "eagle", "--model", o.model, "--out", out)
        export(o.head, f"{tmp}/trained")
        random_head(EConfig, Model, f"{tmp}/trained/config.json", f"{tmp}/drawn", 1)
        export(f"{tmp}/drawn", f"{tmp}/random")  # so that EAGLE finds the embedding of a target without an index
        for name, head in (("trained", o.head), ("random", f"{tmp}/drawn")):
            ea = EaModel.from_pretrained(use_eagle3=True, base_model_path=o.model, ea_model_path=f"{tmp}/{name}",
                                         total_token=TOTAL, depth=DEPTH, top_k=K, torch_dtype=torch.float32).eval()
            ok = loaded(ea, f"{tmp}/{name}/model.safetensors") and ok
            ok = compare(o, name, ea, head, tok, prompts, tmp) and ok
    sys.exit(not ok)


if __name__ == "__main__":
    main()
