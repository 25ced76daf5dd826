"""Medusa heads on a committed target, what they say, and how the authors' code decodes with them.

    git clone https://github.com/FasterDecoding/Medusa CHECKOUT
    python3 tools/goldens/medusa.py CHECKOUT OUT

writes OUT/medusa: heads as the authors' trainer saves them (config.json, medusa_lm_head.pt), which
learn the greedy text of the target eagle3/targets/llama for a moment, and golden.safetensors. The
heads are built of the checkout's ResBlock; the trees and the verdicts are its generate_candidates and
evaluate_posterior at temperature 0 on its choices mc_sim_7b_63. The target runs once for each path,
without a cache or a tree mask. Blocks of a head have weights of their own here, where the authors'
model repeats one block.

| tensor | shape | what |
|---|---|---|
| `hidden` | [n,H] | states of the target after its final norm |
| `logits` | [heads,n,V] | of the heads, in float64 from the stored weights |
| `prompt` | | ids, the target's first token included |
| `ids` | | the prompt and all that was decoded |
| `root_positions`, `accepted` | [rounds] | position of the root; drafted tokens that were kept |
| `tokens`, `parents` | [rounds,64] | of the trees, root first |
"""

import importlib
import json
import pathlib
import sys
import types

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = "eagle3/targets/llama"
HEADS, BLOCKS, NEW, ROUNDS = 4, 2, 60, 14
MARGIN = 5e-5  # ranks closer than this prove nothing about float32, whose sums here differ by 2e-6


def authors(checkout: str):
    """The checkout's module, whose models need a transformers of 2023, with stand-ins for it."""
    sys.path.insert(0, checkout)
    kept = {}
    for name, names in {
        "transformers": ["PreTrainedModel", "PretrainedConfig", "AutoTokenizer", "AutoConfig"],
        "huggingface_hub": ["hf_hub_download"],
    }.items():
        kept[name] = sys.modules.get(name)
        sys.modules[name] = types.ModuleType(name)
        for n in names:
            setattr(sys.modules[name], n, type(n, (), {}))
    for name, cls in (("llama", "LlamaForCausalLM"), ("mistral", "MistralForCausalLM")):
        m = types.ModuleType(name)
        setattr(m, cls, type(cls, (), {}))
        sys.modules[f"medusa.model.modeling_{name}_kv"] = m
    cache = types.ModuleType("kv_cache")
    cache.initialize_past_key_values = None
    sys.modules["medusa.model.kv_cache"] = cache
    out = [importlib.import_module("medusa.model." + n) for n in ("medusa_model", "utils", "medusa_choices")]
    for name, m in kept.items():
        if m is not None:
            sys.modules[name] = m
    return out


def main() -> None:
    torch.manual_seed(int(sys.argv[3]) if len(sys.argv) > 3 else 3)
    torch.set_num_threads(1)
    code, utils, choices = authors(sys.argv[1])
    out = pathlib.Path(sys.argv[2]) / "medusa"
    out.mkdir(parents=True, exist_ok=True)
    target = AutoModelForCausalLM.from_pretrained(
        ROOT / "internal/golden/testdata" / TARGET, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    hidden, vocab = target.config.hidden_size, target.config.vocab_size

    def states(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            h = target.model(ids).last_hidden_state
            return h, target.lm_head(h)

    def greedy(ids: torch.Tensor, n: int) -> torch.Tensor:
        for _ in range(n):
            ids = torch.cat([ids, states(ids)[1][:, -1].argmax(-1, keepdim=True)], 1)
        return ids

    heads = torch.nn.ModuleList(
        torch.nn.Sequential(
            *[code.ResBlock(hidden) for _ in range(BLOCKS)], torch.nn.Linear(hidden, vocab, bias=False)
        )
        for _ in range(HEADS)
    )
    text = greedy(torch.randint(3, vocab, (32, 6)), 48)
    h, _ = states(text)
    adam = torch.optim.Adam(heads.parameters(), lr=1e-2)
    for _ in range(120):
        loss = 0
        for k, head in enumerate(heads):
            said = head(h[:, : -2 - k])
            loss = loss + torch.nn.functional.cross_entropy(said.flatten(0, 1), text[:, 2 + k :].flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    heads.half()
    torch.save(heads.state_dict(), out / "medusa_lm_head.pt")
    (out / "config.json").write_text(json.dumps({
        "base_model_name_or_path": TARGET, "medusa_num_heads": 2, "medusa_num_layers": BLOCKS, "transformers_version": "4.34.0",
    }, indent=1) + "\n")  # the published configurations say 2, too, beside 5 heads

    heads.double().requires_grad_(False)
    x = h[:2, ::9].flatten(0, 1).contiguous()
    golden = {"hidden": x, "logits": torch.stack([head(x.double()) for head in heads]).float()}

    buffers = utils.generate_medusa_buffers(choices.mc_sim_7b_63, "cpu")
    order = sorted(choices.mc_sim_7b_63, key=lambda p: (len(p), p))
    parents = [-1] + [order.index(p[:-1]) + 1 if len(p) > 1 else 0 for p in order]
    paths = [[i for i in r.tolist() if i >= 0] for r in buffers["retrieve_indices"]]
    ids = torch.randint(3, vocab, (1, 9))
    golden["prompt"] = greedy(ids, 1)[0].int()
    roots, accepted, tokens = [], [], []
    hid, logits = states(ids)
    while ids.shape[1] < NEW or len(roots) < ROUNDS:
        said = torch.stack([head(hid[:, -1:].double()) for head in heads])
        best = said[:, 0, 0].topk(utils.TOPK + 1).values
        if (lead := (best[:, :-1] - best[:, 1:]).min()) < MARGIN:
            raise SystemExit(f"round {len(roots)}: a rank leads by {lead:.1e} only: take another seed")
        candidates, tree = utils.generate_candidates(said, logits, buffers["tree_indices"], buffers["retrieve_indices"])
        # The target after every node: each path is a text of its own.
        after = torch.zeros(tree.shape[1], vocab)
        for path in paths:
            row = states(torch.cat([ids, tree[:, path]], 1))[1][0, -len(path):]
            after[path] = row
        two = after.topk(2).values
        if (lead := (two[:, 0] - two[:, 1]).min()) < MARGIN:
            raise SystemExit(f"round {len(roots)}: a choice leads by {lead:.1e} only: take another seed")
        index = buffers["retrieve_indices"]
        which, n = utils.evaluate_posterior(after[index], candidates, 0)
        roots.append(ids.shape[1])
        accepted.append(int(n))
        tokens.append(tree[0].int())
        ids = torch.cat([ids, candidates[which, : n + 1][None]], 1)
        hid, logits = states(ids)
    plain = greedy(golden["prompt"][None].long(), ids.shape[1] - len(golden["prompt"]))
    assert torch.equal(plain, ids), "the text is not the target's own"
    golden |= {
        "ids": ids[0].int(), "root_positions": torch.tensor(roots, dtype=torch.int32), "accepted": torch.tensor(accepted, dtype=torch.int32),
        "tokens": torch.stack(tokens), "parents": torch.tensor([parents] * len(roots), dtype=torch.int32),
    }
    save_file({k: v.contiguous() for k, v in golden.items()}, out / "golden.safetensors")
    print(f"{len(roots)} rounds, {sum(accepted) / len(accepted) + 1:.2f} tokens a round, loss {loss.item() / HEADS:.2f}")


if __name__ == "__main__":
    main()
