"""Multi-token prediction modules (DeepSeek-AI 2024, DeepSeek-V3, §2.2) behind the committed glm4-moe and deepseek-v3.

    python3 tools/goldens/mtp.py OUT

writes OUT/mtp for the former and OUT/mtp-deepseek for the latter: layer.safetensors, random tensors of
model.layers.4 as published files name them, and golden.safetensors. Published files also repeat the
embedding and the LM head there. The layer and its norms are transformers' Glm4MoeDecoderLayer and
Glm4MoeRMSNorm or DeepseekV3DecoderLayer and DeepseekV3RMSNorm, in float64; what joins them is written here:
eh_proj of [enorm(embedding of the next token), hnorm(hidden state)], shared_head.norm, the target's LM head.
Drafted positions take the normed output of the position before.

| tensor | shape | what |
|---|---|---|
| `ids` | [T] | a text |
| `logits` | [T-1,V] | of the true positions, the first of which predicts token 2 |
| `paths` | [paths,D] | drafted tokens behind the text |
| `drafted` | [paths,D,V] | logits after each of them |
"""

import gzip
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.glm4_moe import modeling_glm4_moe as glm

ROOT = pathlib.Path(__file__).resolve().parents[2]
T, DEPTH = 14, 3


def target(name: str):
    """A committed model, unpacked for as long as it is read."""
    home = ROOT / "internal/golden/testdata/hf-more" / name
    with tempfile.TemporaryDirectory() as folder:
        made = pathlib.Path(folder)
        (made / "config.json").write_bytes((home / "config.json").read_bytes())
        (made / "model.safetensors").write_bytes(gzip.decompress((home / "model.safetensors.gz").read_bytes()))
        return AutoModelForCausalLM.from_pretrained(made, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager").eval()


def main() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    out = pathlib.Path(sys.argv[1])
    make(target("glm4-moe"), glm.Glm4MoeDecoderLayer, glm.Glm4MoeRMSNorm, 11, out / "mtp")
    make(target("deepseek-v3"), deepseek.DeepseekV3DecoderLayer, deepseek.DeepseekV3RMSNorm, 12, out / "mtp-deepseek")


def make(model, Layer, Norm, seed: int, dest: pathlib.Path) -> None:
    torch.manual_seed(seed)
    c = model.config
    n, h = c.num_hidden_layers, c.hidden_size
    c.num_hidden_layers += 1  # some lists have an entry for each layer
    layer = Layer(c, n - 1).double().eval()  # a layer with experts
    enorm, hnorm, norm = (Norm(h, c.rms_norm_eps).double() for _ in range(3))
    eh = torch.nn.Linear(2 * h, h, bias=False).double()
    parts = {"": layer, "enorm.": enorm, "hnorm.": hnorm, "eh_proj.": eh, "shared_head.norm.": norm}
    # Stored per expert and in bfloat16; what the network reads is what is stored.
    stored = {}
    for prefix, part in parts.items():
        for name, x in part.state_dict().items():
            scale, mean = (0.3, 1.0) if x.dim() == 1 and "norm" in prefix + name else (0.12 if x.dim() > 1 else 0.1, 0.0)
            x.copy_((mean + scale * torch.randn_like(x)).bfloat16())
            x = x.bfloat16()
            name = f"model.layers.{n}.{prefix}{name}"
            if x.dim() == 3:  # experts, stacked
                for e in range(x.shape[0]):
                    base = name.rsplit(".", 1)[0] + f".{e}."
                    if "gate_up" in name:
                        gate, up = x[e].chunk(2, 0)
                        stored[base + "gate_proj.weight"], stored[base + "up_proj.weight"] = gate.clone(), up.clone()
                    else:
                        stored[base + "down_proj.weight"] = x[e].clone()
            else:
                stored[name] = x.clone()

    def run(tokens: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """The normed outputs of positions that read these next tokens and states."""
        x = eh(torch.cat([enorm(model.model.embed_tokens(tokens)), hnorm(states)], -1))[None]
        at = torch.arange(len(tokens))[None]
        mask = torch.full((len(tokens), len(tokens)), float("-inf"), dtype=torch.float64).triu(1)[None, None]
        y = layer(x, attention_mask=mask, position_ids=at, position_embeddings=model.model.rotary_emb(x, at))
        return norm(y)[0]

    ids = torch.randint(3, c.vocab_size, (T,))
    states = model.model(ids[None]).last_hidden_state[0][:-1]
    y = run(ids[1:], states)
    golden = {"ids": ids.int(), "logits": model.lm_head(y).float()}
    paths = torch.randint(3, c.vocab_size, (4, DEPTH))
    paths[1, 0] = paths[0, 0]
    paths[2, :2] = paths[0, :2]
    drafted = []
    for path in paths:
        tokens, inputs = ids[1:], states
        after = []
        last = y[-1:]
        for token in path:
            tokens, inputs = torch.cat([tokens, token[None]]), torch.cat([inputs, last])
            last = run(tokens, inputs)[-1:]
            after.append(model.lm_head(last)[0])
        drafted.append(torch.stack(after))
    golden |= {"paths": paths.int(), "drafted": torch.stack(drafted).float()}
    dest.mkdir(parents=True, exist_ok=True)
    save_file(stored, dest / "layer.safetensors")
    save_file(golden, dest / "golden.safetensors")
    print(sorted(stored)[:12], golden["logits"].std())


if __name__ == "__main__":
    main()
