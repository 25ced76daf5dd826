"""transformers' outputs on the tiny models of hf/ and hf-more/.

    python3 tools/goldens/models.py [FOLDER/NAME …]              compare with what is stored
    python3 tools/goldens/models.py --out OUT [FOLDER/NAME …]    write golden.safetensors anew
    python3 tools/goldens/models.py --random SEED CONFIG OUT     make a model from a config.json

The first two take weights, inputs, prompts and trees from the committed folders. The last one
writes a new folder with random weights, an input of 48 ids, prompts and two trees, and computes
its outputs: that is how a golden for another architecture is made.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import stored

TOLERANCE = 5e-5  # float32 sums in another order; the goldens are within 4e-5 of float64


class Model:
    """A model in float32 with eager attention, and what its modules saw in the last pass."""

    def __init__(self, folder: pathlib.Path):
        extra = {}
        if json.loads((folder / "config.json").read_text()).get("quantization_config", {}).get("quant_method") == "mxfp4":
            from transformers import Mxfp4Config  # needs the package accelerate

            extra["quantization_config"] = Mxfp4Config(dequantize=True)
        self.net = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **extra).eval().float()
        if hasattr(self.net, "set_experts_implementation"):
            self.net.set_experts_implementation("eager")
        body = self.net.base_model
        layers = getattr(body, "layers", None)
        norm = next(getattr(body, n) for n in ("norm", "final_layer_norm", "final_layernorm") if hasattr(body, n))
        self.layers, self.pre, self.post = [None] * len(layers), None, None
        for i, layer in enumerate(layers):
            layer.register_forward_hook(lambda _, __, out, i=i: self.layers.__setitem__(i, out[0] if isinstance(out, tuple) else out))
        norm.register_forward_pre_hook(lambda _, args: setattr(self, "pre", args[0]))
        norm.register_forward_hook(lambda _, __, out: setattr(self, "post", out))

    @torch.no_grad()
    def run(self, ids, mask=None, positions=None):
        """Logits [T,V] of ids [T]; layers, pre and post are [T,H] afterwards."""
        extra = {} if mask is None else {"attention_mask": mask, "position_ids": positions[None]}
        logits = self.net(input_ids=ids[None], use_cache=False, **extra).logits[0]
        self.layers = [x.reshape(len(ids), -1) for x in self.layers]
        self.pre, self.post = self.pre.reshape(len(ids), -1), self.post.reshape(len(ids), -1)
        return logits

    def greedy(self, prompt, n):
        """n ids after prompt, each from a whole pass, and the lead of each choice."""
        ids, margins = list(prompt.tolist()), []
        for _ in range(n):
            best = self.run(torch.tensor(ids))[-1].topk(2)
            margins.append(best.values[0] - best.values[1])
            ids.append(int(best.indices[0]))
        return torch.tensor(ids[len(prompt):]), torch.stack(margins)


def masked(m: Model, prefix, parents, tokens, depths):
    """Logits of all nodes of a tree in one pass: each sees the prefix, its ancestors and itself."""
    n, t = len(prefix), len(prefix) + len(tokens)
    sees = torch.zeros(t, t, dtype=torch.bool)
    sees[:n, :n] = torch.ones(n, n).tril().bool()
    for i, p in enumerate(parents.tolist()):
        sees[n + i] = sees[n + p] if p >= 0 else sees[n - 1]
        sees[n + i, n + i] = True
    at = torch.cat([torch.arange(n), n + depths])

    def additive(window):  # a window counts positions, not slots
        ok = sees if window is None else sees & (at[:, None] - at[None, :] < window)
        return torch.where(ok, 0.0, torch.finfo(torch.float32).min)[None, None]

    conf = m.net.config
    kinds = set(getattr(conf, "layer_types", None) or [])
    window = getattr(conf, "sliding_window", None)
    if kinds == {"full_attention", "sliding_attention"}:
        mask = {"full_attention": additive(None), "sliding_attention": additive(window)}
    else:
        mask = additive(None if kinds == {"full_attention"} else window)
    return m.run(torch.cat([prefix, tokens]), mask, at)[n:]


def outputs(m: Model, given: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Everything that follows from the inputs in given, under the same names."""
    ids = given["input_ids"][0]
    out = {"input_ids": given["input_ids"], "logits": m.run(ids), "hidden": m.post, "hidden_pre": m.pre}
    layers = list(m.layers)
    for i, x in enumerate(layers[:-1]):
        out[f"layer_out.{i}"] = x
    taps = sorted(int(k[5:]) for k in given if k.startswith("taps."))
    for n in taps:
        out[f"taps.{n}"] = layers[n - 1]
    for p in [k[: -len("_prompt")] for k in given if k.endswith("_prompt") and k != "cross_prompt"]:
        out[p + "_prompt"] = given[p + "_prompt"]
        out[p + "_ids"], out[p + "_margin"] = m.greedy(given[p + "_prompt"], len(given[p + "_ids"]))
    for t in ("tree10", "tree30"):
        prefix, parents, tokens, depths = (given[f"{t}_{k}"] for k in ("prefix", "parents", "tokens", "depths"))
        rows = {"logits": [], "hidden": []} | {f"taps.{n}": [] for n in taps}
        for node in range(len(tokens)):
            path = []
            at = node
            while at >= 0:
                path.insert(0, int(tokens[at]))
                at = int(parents[at])
            rows["logits"].append(m.run(torch.cat([prefix, torch.tensor(path)]))[-1])
            rows["hidden"].append(m.post[-1])
            for n in taps:
                rows[f"taps.{n}"].append(m.layers[n - 1][-1])
        out |= {f"{t}_{k}": given[f"{t}_{k}"] for k in ("prefix", "parents", "tokens", "depths")}
        if f"{t}_logits_mask" in given:
            out[f"{t}_logits_mask"] = masked(m, prefix, parents, tokens, depths)
        # The older folder hf has no hidden states of tree nodes.
        out |= {f"{t}_{k}": torch.stack(v) for k, v in rows.items() if f"{t}_{k}" in given or f"{t}_logits" not in given}
    return out


def check(report: stored.Report) -> None:
    with tempfile.TemporaryDirectory() as tmp:
        for folder in ("hf", "hf-more"):
            for d in sorted(p.name for p in (stored.HOME / folder).iterdir() if p.is_dir()):
                name = f"{folder}/{d}"
                if report.wants(name):
                    m = Model(stored.unpack(name, pathlib.Path(tmp)))
                    report.tensors(name + "/golden.safetensors", outputs(m, stored.tensors(name + "/golden.safetensors")), TOLERANCE)
    report.done()


def random(seed: int, config: str, out: str) -> None:
    torch.manual_seed(seed)
    dest = pathlib.Path(out)
    dest.mkdir(parents=True, exist_ok=True)
    shutil.copy(config, dest / "config.json")
    conf = AutoConfig.from_pretrained(dest)
    net = AutoModelForCausalLM.from_config(conf)
    with torch.no_grad():
        for name, p in net.named_parameters():
            # Norms near one, the rest large enough that mistakes show.
            p.copy_(torch.randn_like(p) * 0.1 + 1 if "norm" in name and p.dim() == 1 else torch.randn_like(p) * 1.5 / max(1, p.shape[-1]) ** 0.5)
    net.to(torch.bfloat16).save_pretrained(dest)
    shutil.copy(config, dest / "config.json")  # save_pretrained writes transformers' own spelling
    given = {"input_ids": torch.randint(3, conf.vocab_size, (1, 48))}
    for name, n in (("greedy", 8), ("greedy30", 30)):
        given |= {f"{name}_prompt": given["input_ids"][0, :n], f"{name}_ids": torch.zeros(40)}
    for t, n in (("tree10", 10), ("tree30", 30)):
        parents = [-1] + [int(torch.randint(0, i, ())) for i in range(1, 12)]
        depths = [0]
        for p in parents[1:]:
            depths.append(depths[p] + 1)
        given |= {
            f"{t}_prefix": given["input_ids"][0, :n], f"{t}_parents": torch.tensor(parents), f"{t}_depths": torch.tensor(depths),
            f"{t}_tokens": torch.randint(3, conf.vocab_size, (12,)),
        }
    made = outputs(Model(dest), given)
    if min(made["greedy_margin"].min(), made["greedy30_margin"].min()) < 2e-3:
        raise SystemExit("a greedy choice leads by less than 2e-3: take another seed")
    save_file({k: v.clone() for k, v in made.items()}, dest / "golden.safetensors")
    (dest / "golden.json").write_text(json.dumps({"seed": seed, "torch": torch.__version__, "tensors": {k: list(v.shape) for k, v in made.items()}}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--random"]:
        random(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        check(stored.Report(__doc__))
