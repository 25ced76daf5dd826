"""Computes reference/losses/acceptance.json again: losses of one node, and their gradients by the draft's
logits, as the speculators library has them.

    python3 tools/goldens/acceptance.py [--out OUT]

$SPECULATORS is a clone of vllm-project/speculators: its src/speculators/losses/eager.py is run as
it is, on the committed logits. The library computes them in float32.
"""

import importlib.util
import json
import os
import pathlib

import torch

import stored

NAME = "reference/losses/acceptance.json"
LOSSES = {"tv": "tv_loss", "nla": "neg_log_acceptance_loss", "lk": "lk_hybrid_loss", "rkl": "reverse_kl_div_loss"}
TOLERANCE = 2e-6


def library():
    path = pathlib.Path(os.environ["SPECULATORS"]) / "src" / "speculators" / "losses" / "eager.py"
    spec = importlib.util.spec_from_file_location("eager", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows() -> list[dict]:
    """Logits of the target and the draft: equal but for noise, unrelated, far apart, one certain."""
    g = torch.Generator().manual_seed(7)
    out = []
    for name, near, sharp in [("near", 0.3, 1), ("unrelated", 3, 1), ("sharp", 3, 3), ("far", 8, 2)]:
        for _ in range(3):
            p = torch.randn(12, generator=g) * sharp
            q = p + near * torch.randn(12, generator=g)
            out.append({"name": name, "target": p.tolist(), "draft": q.tolist()})
    certain = torch.full((12,), -20.0)
    certain[4] = 0
    out.append({"name": "certain", "target": certain.tolist(), "draft": torch.randn(12, generator=g).tolist()})
    return out


def main() -> None:
    report = stored.Report(__doc__)
    eager = library()
    cases = rows() if report.args.out else json.loads(stored.text(NAME))
    for c in cases:
        target = torch.tensor(c["target"])
        got = {}
        for name, function in LOSSES.items():
            draft = torch.tensor(c["draft"], requires_grad=True)
            loss = getattr(eager, function)(draft[None, None], target[None, None]).sum()
            loss.backward()
            got[name] = {"loss": loss.item(), "gradient": draft.grad.tolist()}
        if report.args.out:
            c["losses"] = got
            continue
        for name, g in got.items():
            want = c["losses"][name]
            for a, b in zip([g["loss"], *g["gradient"]], [want["loss"], *want["gradient"]]):
                if abs(a - b) > TOLERANCE * max(1, abs(b)):
                    report.fail(f"{c['name']}: {name}: {a}, stored {b}")
    if report.args.out:
        dest = report.args.out / NAME
        dest.parent.mkdir(parents=True, exist_ok=True)
        dest.write_text(json.dumps(cases, indent=1) + "\n")
    print(f"{len(cases)} rows, {len(LOSSES)} losses")
    report.done()


if __name__ == "__main__":
    main()
