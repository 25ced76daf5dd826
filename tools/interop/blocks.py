#!/usr/bin/env python3
"""The authors' code of DFlash or DSpark and talf with one block head: the same blocks of drafts.

    blocks.py TALF CODE MODEL HEAD PROMPTS [--prompts 10] [--tokens 64]

TALF is the binary, MODEL a target with a tokenizer, HEAD a block head of talf's for it, without a draft
vocabulary, PROMPTS a file of EAGLE's questions ("turns"). CODE is a checkout of z-lab/dflash at 44947fb for rows
that predict the token at their place, of deepseek-ai/DeepSpec at afdfa7c for shifted rows. On a CPU:

    python3.11 -m venv .cache/blocks
    .cache/blocks/bin/pip install torch==2.15.0 transformers==5.19.0 safetensors accelerate

The authors' class loads what `talf export --format block` writes: no tensor may be missing or left over. In
every round of talf's greedy decoding, it drafts a block from the same text, the likeliest tokens from the left to
the right. Tokens must be equal, and their probabilities up to 1e-4. Where two tokens are equally likely up to
1e-5, either may be drafted: that is counted as a tie, and the rest of the block is not compared.
"""

import argparse
import json
import sys
import tempfile

import torch
from traces import chain_rounds, read_prompts, talf

TIE, TOLERANCE = 1e-5, 1e-4


def dspark(directory):
    """The head, and what drafts logits [B, V] of a block behind text, given the target's states."""
    from deepspec.eval.dspark.draft_ops import forward_dspark_draft_block
    from deepspec.modeling.dspark.common import extract_context_feature
    from deepspec.modeling.dspark.qwen3 import Qwen3DSparkModel
    from transformers import DynamicCache

    m, info = Qwen3DSparkModel.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)

    def draft(target, text, states):
        at, size = len(text) - 1, m.block_size
        ids = torch.tensor([[text[-1]] + [m.mask_token_id] * (size - 1)])
        hidden = forward_dspark_draft_block(
            m, draft_input_ids=ids, position_ids=torch.arange(at + size)[None], past_key_values_draft=DynamicCache(),
            target_hidden_states=extract_context_feature(states, m.target_layer_ids), start=at, block_size=size)
        _, logits = m.sample_draft_tokens(m.compute_logits(hidden), first_prev_token_ids=ids[:, 0], hidden_states=hidden)
        return logits[0]

    return m, info, draft


def dflash(directory):
    from dflash.model import DFlashDraftModel, extract_context_feature

    m, info = DFlashDraftModel.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)

    def draft(target, text, states):
        at, size = len(text) - 1, m.block_size
        ids = torch.tensor([[text[-1]] + [m.mask_token_id] * (size - 1)])
        hidden = m(target_hidden=extract_context_feature(states, m.target_layer_ids), is_causal=False,
                   noise_embedding=target.model.embed_tokens(ids), position_ids=torch.arange(at + size)[None])
        return target.lm_head(hidden[:, 1 - size :])[0]

    return m, info, draft


@torch.inference_mode()
def main():
    p = argparse.ArgumentParser(usage=__doc__)
    for name in ("talf", "code", "model", "head", "prompts_file"):
        p.add_argument(name)
    p.add_argument("--prompts", type=int, default=10)
    p.add_argument("--tokens", type=int, default=64)
    o = p.parse_args()
    sys.path.insert(0, o.code)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    tok = AutoTokenizer.from_pretrained(o.model)
    target = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32).eval()
    same = tokens = ties = bad = 0
    worst = 0.0
    with tempfile.TemporaryDirectory() as tmp:
        out = f"{tmp}/head"
        talf(o, "export", "--head", o.head, "--format", "block", "--model", o.model, "--out", out)
        with open(f"{out}/config.json") as f:
            family = {"Qwen3DSparkModel": dspark, "DFlashDraftModel": dflash}[json.load(f)["architectures"][0]]
        m, info, draft = family(out)
        m.eval()
        if any(info.values()):
            sys.exit(f"not loaded as it stands in the file: {info}")
        for number, prompt in enumerate(read_prompts(o)):
            text = tok(prompt)["input_ids"]
            length = len(text)
            for pos, drafted, q, path, following in chain_rounds(o, m.block_size, prompt, tmp):
                if len(text) >= length + o.tokens:
                    break  # near the end of an answer talf drafts no more than may follow
                if pos != len(text) - 1:
                    sys.exit(f"prompt {number}: talf's root is at {pos}, want {len(text) - 1}: the tokenizers differ")
                states = target(torch.tensor([text[:-1]]), output_hidden_states=True, use_cache=False).hidden_states
                best = torch.softmax(draft(target, text, states).double(), -1).topk(2)
                if len(drafted) != len(best.values):
                    sys.exit(f"prompt {number}, root {pos}: talf drafts {len(drafted)} tokens, the authors' code {len(best.values)}")
                verdict = 0
                for i, token in enumerate(drafted):
                    first, second = best.values[i].tolist()
                    if token != int(best.indices[i, 0]):
                        verdict = 1 if token == int(best.indices[i, 1]) and first - second < TIE else 2
                        break
                    worst = max(worst, abs(q[i] - first))
                if verdict == 2:
                    print(f"prompt {number}, root {pos}: talf drafts {drafted}, the authors' code {best.indices[:, 0].tolist()}")
                same, ties, bad = same + (verdict == 0), ties + (verdict == 1), bad + (verdict == 2)
                tokens += len(drafted) if verdict == 0 else 0
                text = text + [drafted[n - 1] for n in path[1:]] + [following]
    print(f"{family.__name__}: {same} of {same + ties + bad} blocks are equal ({tokens} tokens), {ties} ties; "
          f"largest difference of a probability {worst:.1e}")
    sys.exit(bad > 0 or same == 0 or not worst < TOLERANCE)


if __name__ == "__main__":
    main()
