"""Losses of EAGLE, HASS and TALF with their gradients, and AdamW, in float64 by PyTorch's autograd.

    python3 tools/goldens/losses.py                compare with reference/losses and reference/eagle_head
    python3 tools/goldens/losses.py --out OUT      write forward, grads and adamw anew

The network is written once more here, position by position and node by node, without batches,
masks or caches, so that it shares no trick with the code under test. README.md of the goldens
has the notation.
"""

import json

import torch
import torch.nn.functional as F

import stored

torch.set_default_dtype(torch.float64)
LAYER = "layers.0."


class Head:
    """EAGLE's draft head: fc, one Llama layer without the norm before attention."""

    def __init__(self, folder: str):
        c = json.loads(stored.text(folder + "/config.json"))
        self.heads, self.kv, self.theta, self.eps = c["num_attention_heads"], c["num_key_value_heads"], c["rope_theta"], c["rms_norm_eps"]
        w = {k: v.double() for k, v in stored.tensors(folder + "/model.safetensors").items()}
        self.embed = w.pop("embed_tokens.weight")
        self.w = {k: v.requires_grad_() for k, v in w.items()}

    def rope(self, x, at):
        half = x.shape[-1] // 2
        angle = at * self.theta ** (-torch.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

    def key(self, feature, token, at):
        """What a position contributes to others: its residual stream u, its key and its value."""
        u = F.linear(torch.cat([self.embed[token], feature]), self.w["fc.weight"], self.w.get("fc.bias"))
        k, v = (F.linear(u, self.w[f"{LAYER}self_attn.{n}_proj.weight"]).view(self.kv, -1) for n in "kv")
        return u, self.rope(k, at), v

    def out(self, u, at, keys, values):
        """f̂ of a position with residual stream u that sees keys and values, itself included."""
        q = self.rope(F.linear(u, self.w[LAYER + "self_attn.q_proj.weight"]).view(self.heads, -1), at)
        k = torch.stack(keys).repeat_interleave(self.heads // self.kv, 1)  # [seen, heads, dim]
        v = torch.stack(values).repeat_interleave(self.heads // self.kv, 1)
        a = torch.einsum("hd,shd->hs", q, k).div(q.shape[-1] ** 0.5).softmax(-1)
        h = u + F.linear(torch.einsum("hs,shd->hd", a, v).flatten(), self.w[LAYER + "self_attn.o_proj.weight"])
        n = self.w[LAYER + "post_attention_layernorm.weight"] * h / (h.square().mean() + self.eps).sqrt()
        mlp = {x: self.w[f"{LAYER}mlp.{x}_proj.weight"] for x in ("gate", "up", "down")}
        return h + F.linear(F.silu(F.linear(n, mlp["gate"])) * F.linear(n, mlp["up"]), mlp["down"])

    def causal(self, features, tokens):
        """f̂ of head positions 0..: position i takes features[i] and tokens[i+1]. Also keys and values."""
        outs, keys, values = [], [], []
        for i in range(len(tokens) - 1):
            u, k, v = self.key(features[i], tokens[i + 1], i)
            keys.append(k)
            values.append(v)
            outs.append(self.out(u, i, keys, values))
        return outs, keys, values

    def tree(self, outs, keys, values, at, tokens, parents):
        """f̂ of nodes below head position at, in order; parent −1 is that position."""
        made, ks, vs, depth = [], [], [], []
        for t, p in zip(tokens.tolist(), parents.tolist(), strict=True):
            depth.append(1 if p < 0 else depth[p] + 1)
            u, k, v = self.key(outs[at] if p < 0 else made[p], t, at + depth[-1])
            ks.append(k)
            vs.append(v)
            seen, n = [len(ks) - 1], p
            while n >= 0:
                seen.append(n)
                n = parents[n].item()
            made.append(self.out(u, at + depth[-1], keys[: at + 1] + [ks[s] for s in seen], values[: at + 1] + [vs[s] for s in seen]))
        return made


class Batch:
    def __init__(self):
        b = stored.tensors("reference/losses/batch.safetensors")
        self.lm = b["lm_head.weight"].double()
        self.t = b
        self.lengths = b["lengths"].tolist()
        self.n = b["position_mask"].sum().item()

    def sequences(self):
        for s, n in enumerate(self.lengths):
            yield s, self.t["token_ids"][s, :n], self.t["features"][s, :n], self.t["position_mask"][s, :n].tolist()


def terms(b: Batch, outs, features, mask, k):
    """Sums over positions of regression, classification and top-k terms."""
    reg = cls = top = torch.zeros(())
    for i, f in enumerate(outs):
        if not mask[i]:
            continue
        reg = reg + F.smooth_l1_loss(f, features[i + 1])
        p, logq = (b.lm @ features[i + 1]).softmax(-1), (b.lm @ f).log_softmax(-1)
        cls = cls - (p * logq).sum()
        best = p.topk(k).indices
        top = top - (p[best] * logq[best]).sum()
    return reg / b.n, cls / b.n, top / b.n


def eagle(h: Head, b: Batch, w):
    total, rows = [torch.zeros(()), torch.zeros(())], []
    for _, tokens, features, mask in b.sequences():
        outs, _, _ = h.causal(features, tokens)
        rows.append(torch.stack(outs))
        reg, cls, _ = terms(b, outs, features, mask, 1)
        total = [total[0] + reg, total[1] + cls]
    return total[0], total[1], w["w_reg"] * total[0] + w["w_cls"] * total[1], rows


def hass(h: Head, b: Batch, w, flow):
    """Passes 1..S: a query of pass j sees position c as pass max(1, j−(i−c)) computed it."""
    total, per = torch.zeros(()), [torch.zeros(3) for _ in range(w["hass_passes"])]
    for _, tokens, features, mask in b.sequences():
        n = len(tokens) - 1
        cached, previous = [], None  # by pass: u, k, v of every position
        for j in range(1, w["hass_passes"] + 1):
            feed = [features[i] if j == 1 or i == 0 else previous[i - 1] if flow else previous[i - 1].detach() for i in range(n)]
            cached.append([h.key(feed[i], tokens[i + 1], i) for i in range(n)])
            outs = []
            for i in range(n):
                seen = [cached[max(1, j - (i - c)) - 1][c] for c in range(i + 1)]
                outs.append(h.out(cached[j - 1][i][0], i, [s[1] for s in seen], [s[2] for s in seen]))
            reg, cls, top = terms(b, outs, features, mask, w["hass_K"])
            total = total + w["w_reg"] * reg + w["w_cls"] * cls + w["w_topk"] * top
            per[j - 1] = per[j - 1] + torch.stack([reg, cls, top]).detach()
            previous = outs
    return total, per


def talf(h: Head, b: Batch):
    """For full, tail and ignore: the loss, and the loss of every node [B,T,9]."""
    shape = b.t["tree_tokens"].shape
    total = {k: torch.zeros(()) for k in ("full", "tail", "ignore")}
    nodes = {k: torch.zeros(shape) for k in total}
    for s, tokens, features, mask in b.sequences():
        outs, keys, values = h.causal(features, tokens)
        for i in range(len(tokens) - 1):
            root = i + 1
            # Node 0 is the head position itself; the others hang below it.
            made = [outs[i]] + h.tree(outs, keys, values, i, b.t["tree_tokens"][s, root, 1:], b.t["tree_parents"][s, root, 1:] - 1)
            for n, f in enumerate(made):
                logq = (b.lm @ f).log_softmax(-1)
                ids, p, tail = b.t["tree_top_ids"][s, root, n].long(), b.t["tree_top_probs"][s, root, n], b.t["tree_tail"][s, root, n]
                head = -(p * logq[ids]).sum()
                loss = {
                    "full": -(b.t["tree_labels"][s, root, n] * logq).sum(),
                    "tail": head - tail * torch.log1p(-logq[ids].exp().sum()),
                    "ignore": head,
                }
                for k, x in loss.items():
                    nodes[k][s, i, n] = x.detach()
                    if mask[i]:
                        total[k] = total[k] + x / b.n
    return total, nodes


def gradients(h: Head, loss, name: str) -> dict:
    grads = torch.autograd.grad(loss, list(h.w.values()), retain_graph=True)
    return {f"{name}.{k}": g for k, g in zip(h.w, grads, strict=True)}


def adamw(report, b: Batch, w) -> dict:
    h, out, m, v = Head("reference/losses/head"), {}, {}, {}
    c = w["adamw"]
    for step in c["steps"]:
        t, lr = step["step"], step["lr"]
        loss = eagle(h, b, w)[2]
        near(report, f"adamw step {t} loss", loss, step["loss_before"])
        g = gradients(h, loss, f"step{t}.grad")
        out |= {k: x.clone() for k, x in g.items()}
        norm = torch.sqrt(sum(x.square().sum() for x in g.values()))
        near(report, f"adamw step {t} norm", norm, step["grad_norm"])
        factor = min(1.0, c["max_grad_norm"] / (norm + 1e-6))
        with torch.no_grad():
            for k, p in h.w.items():
                x = g[f"step{t}.grad.{k}"] * factor
                m[k] = c["betas"][0] * m.get(k, 0) + (1 - c["betas"][0]) * x
                v[k] = c["betas"][1] * v.get(k, 0) + (1 - c["betas"][1]) * x * x
                p *= 1 - lr * c["weight_decay"]
                p -= lr * (m[k] / (1 - c["betas"][0] ** t)) / ((v[k] / (1 - c["betas"][1] ** t)).sqrt() + c["eps"])
                out[f"step{t}.param.{k}"] = p.detach().clone()
    return out


def near(report, what, got, want) -> None:
    if abs(float(torch.as_tensor(got).detach()) - want) > 1e-10 * max(1, abs(want)):
        report.fail(f"losses.json: {what} is {got}, stored {want!r}")


def heads(report) -> None:
    for name in ("bias", "nobias"):
        folder = f"reference/eagle_head/{name}"
        h, c = Head(folder), stored.tensors(folder + "/case.safetensors")
        with torch.no_grad():
            outs, keys, values = h.causal(c["features"].double(), c["token_ids"])
            nodes = h.tree(outs, keys, values, len(outs) - 1, c["tree_tokens"], c["tree_parents"])
        for key, x in (("f_hat_f64", outs), ("tree_f_hat_f64", nodes)):
            d = (torch.stack(x) - c[key]).abs().max().item()
            print(f"{folder}: {key} within {d:.1e}")
            if d > 1e-10:
                report.fail(f"{folder}: {key} is {d:.1e} away")


def main() -> None:
    report = stored.Report(__doc__)
    w = json.loads(stored.text("reference/losses/losses.json"))
    b, h = Batch(), Head("reference/losses/head")
    heads(report)

    reg, cls, total, rows = eagle(h, b, w)
    for what, x in (("reg", reg), ("cls", cls), ("total", total)):
        near(report, f"eagle.{what}", x, w["eagle"][what])
    grads = gradients(h, reg, "eagle.reg") | gradients(h, cls, "eagle.cls") | gradients(h, total, "eagle.total")
    for kind in ("detach", "flow"):
        total, per = hass(h, b, w, kind == "flow")
        near(report, f"hass.{kind}", total, w[f"hass.{kind}"]["total"])
        for got, want in zip(per, w[f"hass.{kind}"]["per_pass_reg_cls_topk"], strict=True):
            for x, y in zip(got, want, strict=True):
                near(report, f"hass.{kind} per pass", x, y)
        grads |= gradients(h, total, f"hass.{kind}")
    totals, nodes = talf(h, b)
    for k, x in totals.items():
        near(report, f"talf.{k}", x, w[f"talf.{k}"]["total"])
        grads |= gradients(h, x, f"talf.{k}")

    f_hat = stored.tensors("reference/losses/forward.safetensors")["eagle.f_hat"].clone()
    for s, r in enumerate(rows):  # padding keeps what is stored
        f_hat[s, : len(r)] = r.detach()
    report.tensors("reference/losses/forward.safetensors", {"eagle.f_hat": f_hat} | {f"talf.{k}.node_loss": x for k, x in nodes.items()}, 1e-10)
    report.tensors("reference/losses/grads.safetensors", grads, 1e-10)
    report.tensors("reference/losses/adamw.safetensors", adamw(report, b, w), 1e-10)
    report.done()


if __name__ == "__main__":
    main()
