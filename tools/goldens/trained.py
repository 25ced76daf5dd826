"""Golden outputs of transformers on the trained model of internal/demo/target.

    python3 tools/goldens/trained.py OUT

writes OUT/demo/golden.safetensors: logits and hidden states of one input, and
five greedy continuations of 100 tokens with the lead of every choice over the
second best, so that a test knows how far apart two correct float32 sums may be.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

MODEL = pathlib.Path(__file__).resolve().parents[2] / "internal" / "demo" / "target"
PROMPTS = [
    "Once upon a time there was a little girl who",
    "Tom had a red ball. One day",
    "The old man had a dog. Every morning",
    "Question: Anna has 3 apples and buys 4 more. How many apples does she have?\nAnswer:",
    "Luca found a small key under",
]
MIN_MARGIN = 2e-3  # a greedy choice closer than this proves nothing about a float32 implementation


@torch.no_grad()
def main() -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tok = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32, attn_implementation="eager").eval()
    out = {}

    ids = torch.tensor(tok.encode(" ".join(PROMPTS)).ids[:48])
    body = model.model(ids[None]).last_hidden_state
    out["input_ids"] = ids.to(torch.int64)
    out["hidden"] = body[0]
    out["logits"] = model.lm_head(body)[0]

    for i, text in enumerate(PROMPTS):
        prompt = tok.encode(text).ids
        seq, margins = list(prompt), []
        for _ in range(100):  # a whole pass for each token: no cache to trust
            best = model(torch.tensor([seq])).logits[0, -1].topk(2)
            margins.append((best.values[0] - best.values[1]).item())
            seq.append(int(best.indices[0]))
        if min(margins) < MIN_MARGIN:
            raise SystemExit(f"prompt {i}: a choice leads by {min(margins):.1e} only: take another prompt")
        out[f"greedy{i}_prompt"] = torch.tensor(prompt)
        out[f"greedy{i}_ids"] = torch.tensor(seq[len(prompt):])
        out[f"greedy{i}_margin"] = torch.tensor(margins)
        print(i, f"margin {min(margins):.1e}", repr(tok.decode(seq)))
    dest = pathlib.Path(sys.argv[1]) / "demo"
    dest.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in out.items()}, dest / "golden.safetensors")


if __name__ == "__main__":
    main()
