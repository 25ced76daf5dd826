"""Golden outputs of transformers on the trained models of internal/demo: target and gsm10m.

    make demo-large
    python3 tools/goldens/trained.py OUT

writes OUT/demo/golden.safetensors and OUT/gsm10m/golden.safetensors: logits and hidden states of one
input, and five greedy continuations of 100 tokens with the lead of every choice over the second
best, so that a test knows how far apart two correct float32 sums may be.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"demo": ROOT / "internal" / "demo" / "target", "gsm10m": ROOT / ".cache" / "demo-large" / "gsm10m"}
PROMPTS = {
    "demo": [
        "Once upon a time there was a little girl who",
        "Tom had a red ball. One day",
        "The old man had a dog. Every morning",
        "Question: Anna has 3 apples and buys 4 more. How many apples does she have?\nAnswer:",
        "Luca found a small key under",
    ],
    "gsm10m": [
        "Question: Ines sews 14 cushions a week for 3 weeks and gives 8 of them to her aunt. How many cushions does she keep?\nAnswer:",
        "Question: A ferry has 36 seats on each of its 2 decks. On Tuesday 19 seats were empty. How many people sat down?\nAnswer:",
        "Question: Jonas pays $7 for a lamp and twice as much for a chair. How much does he pay for both?\nAnswer:",
        "The gray goose wanted to swim to the other side of the pond. She",
        "Mira and her grandpa built a kite out of old newspapers. When the wind",
    ],
}
MIN_MARGIN = 2e-3  # a greedy choice closer than this proves nothing about a float32 implementation


def record(model_dir: pathlib.Path, prompts: list[str], dest: pathlib.Path) -> None:
    tok = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval()
    out = {}

    ids = torch.tensor(tok.encode(" ".join(prompts)).ids[:48])
    body = model.model(ids[None]).last_hidden_state
    out["input_ids"] = ids.to(torch.int64)
    out["hidden"] = body[0]
    out["logits"] = model.lm_head(body)[0]

    for i, text in enumerate(prompts):
        prompt = tok.encode(text).ids
        seq, margins = list(prompt), []
        for _ in range(100):  # a whole pass for each token: no cache to trust
            best = model(torch.tensor([seq])).logits[0, -1].topk(2)
            margins.append((best.values[0] - best.values[1]).item())
            seq.append(int(best.indices[0]))
        if min(margins) < MIN_MARGIN:
            raise SystemExit(f"{model_dir.name}, prompt {i}: a choice leads by {min(margins):.1e} only: take another prompt")
        out[f"greedy{i}_prompt"] = torch.tensor(prompt)
        out[f"greedy{i}_ids"] = torch.tensor(seq[len(prompt):])
        out[f"greedy{i}_margin"] = torch.tensor(margins)
        print(i, f"margin {min(margins):.1e}", repr(tok.decode(seq)))
    dest.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in out.items()}, dest / "golden.safetensors")


@torch.no_grad()
def main() -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    for name, model_dir in MODELS.items():
        record(model_dir, PROMPTS[name], pathlib.Path(sys.argv[1]) / name)


if __name__ == "__main__":
    main()
