"""Measures vLLM's greedy decoding of one sequence on the shapes that talf's bundle has,
with random weights.

Usage: vllm_speed.py OUT.json
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time

from torch_speed import CONTEXT, REPS, SHAPES, TOKENS


def speed(shape):
    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(directory, "config.json"), "w") as f:
            json.dump({
                "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
                "max_position_embeddings": 4096, "bos_token_id": 1, "eos_token_id": 2, **shape,
            }, f)
        model = LLM(model=directory, load_format="dummy", skip_tokenizer_init=True, dtype="bfloat16", max_model_len=4096, enable_prefix_caching=False)
        prompt = {"prompt_token_ids": [random.randrange(3, shape["vocab_size"]) for _ in range(CONTEXT)]}

        def decode(n):
            params = SamplingParams(temperature=0, max_tokens=n, ignore_eos=True, detokenize=False)
            least = float("inf")
            for i in range(REPS + 1):
                since = time.perf_counter()
                model.generate([prompt], params, use_tqdm=False)
                if i > 0:
                    least = min(least, time.perf_counter() - since)
            return least

        # What the prompt costs is in both.
        return TOKENS / (decode(TOKENS + 1) - decode(1))


def main():
    if len(sys.argv) == 3:  # one shape, in a process of its own, which gives its memory back
        with open(sys.argv[1], "w") as f:
            json.dump(speed(SHAPES[sys.argv[2]]), f)
        return
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    out, failed = {}, False
    for name in SHAPES:
        part = sys.argv[1] + ".part"
        if subprocess.run([sys.executable, __file__, part, name], check=False).returncode != 0:
            failed = True
            continue
        with open(part) as f:
            out[name] = {"vllm_tokens_per_second": json.load(f)}
        os.remove(part)
        with open(sys.argv[1], "w") as f:
            json.dump(out, f)
    sys.exit(failed)


if __name__ == "__main__":
    main()
