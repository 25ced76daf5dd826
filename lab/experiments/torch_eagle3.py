#!/usr/bin/env python3
"""One training step of an EAGLE-3 head in PyTorch on the CPU: the yardstick of BenchmarkEagle3Step in talf/train.

fc 3H -> H over three states of the target; a Llama layer whose projections read [norm of embedding; norm of state], 2H
wide; an LM head that learns. Training-time test: step k at root i is fed what step k-1 fed back, sees the first steps of
roots 0..i and its own earlier ones, and gradients flow through all of it. Labels are top-16 probabilities and one bucket
for the rest. AdamW and a largest gradient norm, as talf has them. Data are random: only speed and memory count.

--head fused computes loss and gradients of the LM head in chunks of rows, so that no logits are kept. --head joint does so
for the rows of all steps at once, so that there is one gradient of the LM head and not one for each step: as good as PyTorch
gets. --head plain keeps the logits, as the published trainers do. import_mib is the memory that importing PyTorch takes,
more if it was built for GPUs.

    pip install torch
    lab/experiments/torch_eagle3.py --size small --threads 2      # one JSON line
    lab/experiments/torch_eagle3.py --check 1                     # attention and loss against explicit forms
    lab/experiments/torch_eagle3.py --beside 5 --size small       # in turn with talf: ratios with intervals
"""
import argparse, json, math, os, random, re, resource, statistics, subprocess, sys, time

ap = argparse.ArgumentParser()
ap.add_argument('--size', choices=['small', 'large'], default='small')
ap.add_argument('--head', choices=['fused', 'joint', 'plain'], default='fused')
ap.add_argument('--threads', type=int, default=2)
ap.add_argument('--measured', type=int, default=3, help='steps that are timed')
ap.add_argument('--check', type=int, default=0)
ap.add_argument('--beside', type=int, default=0, help='rounds in turn with talf')
ap.add_argument('--heads', default='fused,joint,plain', help="PyTorch's of these rounds")
ap.add_argument('--binary', default='', help="talf's test binary: go test -c -o train.test ./train")
a = ap.parse_args()


def beside():
    """Rounds of both programs in turn, each in a process of its own: time and peak memory of PyTorch over talf's."""
    if not a.binary:
        sys.exit('--beside wants --binary')
    ms, cpu, mib, net, heads = [], [], [], [], a.heads.split(',')
    for n in range(a.beside):
        def torch(head):
            out = subprocess.run([sys.executable, __file__, '--size', a.size, '--head', head, '--threads', str(a.threads), '--measured', str(a.measured)],
                                 check=True, capture_output=True, text=True).stdout
            r = json.loads(out)
            return r['step_ms'], r['cpu_ms'], r['peak_mib'], r['peak_mib'] - r['import_mib']

        def talf():
            out = subprocess.run([os.path.abspath(a.binary), '-test.run', 'xxx', '-test.bench', f'Eagle3Step/{a.size}$', '-test.benchtime', f'{a.measured}x',
                                  '-test.cpu', str(a.threads)], check=True, capture_output=True, text=True).stdout
            peak = float(re.search(r'([\d.]+) peak-MiB', out)[1])
            return float(re.search(r'([\d.]+) ns/op', out)[1]) / 1e6, float(re.search(r'([\d.]+) cpu-ms/op', out)[1]), peak, peak
        order = ['talf', *heads]
        got = {k: talf() if k == 'talf' else torch(k) for k in (order if n % 2 == 0 else order[::-1])}
        ms.append({k: v[0] for k, v in got.items()})
        cpu.append({k: v[1] for k, v in got.items()})
        mib.append({k: v[2] for k, v in got.items()})
        net.append({k: v[3] for k, v in got.items()})
        print(json.dumps(dict(round=n + 1, ms=ms[-1], cpu_ms=cpu[-1], peak_mib=mib[-1], without_import=net[-1])), flush=True)
    rng = random.Random(1)

    def ratio(rounds, head):
        logs = [math.log(r[head] / r['talf']) for r in rounds]
        means = sorted(statistics.mean(rng.choices(logs, k=len(logs))) for _ in range(2000))
        return [round(math.exp(x), 2) for x in (statistics.mean(logs), means[50], means[1949])]
    for head in heads:  # value, ends of the 95% interval over rounds
        print(json.dumps(dict(size=a.size, threads=a.threads, against=head, speed=ratio(ms, head), processor_time=ratio(cpu, head),
                              memory=round(statistics.median(r['talf'] / r[head] for r in mib), 2),
                              without_import=round(statistics.median(r['talf'] / r[head] for r in net), 2))))


if a.beside:
    beside()
    sys.exit()

os.environ.setdefault('OMP_NUM_THREADS', str(a.threads))
import torch
import torch.nn as nn
import torch.nn.functional as F

import_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
torch.set_num_threads(a.threads)
torch.manual_seed(0)
V, H, NH, KV, FFN, B, S = dict(small=(4096, 256, 4, 2, 704, 2, 7), large=(32000, 2048, 16, 16, 5632, 1, 3))[a.size]
if a.check:
    V, H, NH, KV, FFN, B, S = 97, 32, 4, 2, 48, 2, 4
T, D, K, CHUNK = 256 if not a.check else 11, H // NH, 16, 512


class FusedCE(torch.autograd.Function):
    """sum over rows of s (-sum_k p_k log q_k - p_tail log(1 - sum_k q_k)), q = softmax(h W^T)."""

    @staticmethod
    def forward(ctx, h, W, idx, p, s):
        dh, dW = torch.empty_like(h), torch.zeros_like(W)
        loss = h.new_zeros(())
        for i in range(0, h.shape[0], CHUNK):
            x, ix, pk, sk = h[i:i + CHUNK], idx[i:i + CHUNK], p[i:i + CHUNK], s[i:i + CHUNK, None]
            q = torch.softmax(x @ W.t(), -1)
            qk = q.gather(1, ix)
            tail = (1 - qk.sum(1, keepdim=True)).clamp_min(1e-6)
            pt = (1 - pk.sum(1, keepdim=True)).clamp_min(0)
            loss -= (sk * pk * qk.clamp_min(1e-30).log()).sum() + (sk * pt * tail.log()).sum()
            q.mul_(sk * (1 - pt / tail)).scatter_(1, ix, sk * (qk - pk))
            dh[i:i + CHUNK] = q @ W
            dW.addmm_(q.t(), x)
        ctx.save_for_backward(dh, dW)
        return loss

    @staticmethod
    def backward(ctx, g):
        dh, dW = ctx.saved_tensors
        return dh * g, dW.mul_(g), None, None, None


def plain_ce(h, W, idx, p, s):
    lq = F.log_softmax(h @ W.t(), -1).gather(1, idx)
    tail = (1 - lq.exp().sum(1)).clamp_min(1e-6)
    return -((s[:, None] * p * lq).sum() + (s * (1 - p.sum(1)).clamp_min(0) * tail.log()).sum())


class Head(nn.Module):
    def __init__(s):
        super().__init__()
        lin = lambda i, o: nn.Linear(i, o, bias=False)
        s.fc, s.qkv, s.o = lin(3 * H, H), lin(2 * H, (NH + 2 * KV) * D), lin(NH * D, H)
        s.gu, s.down, s.lm = lin(H, 2 * FFN), lin(FFN, H), lin(H, V)
        s.n_in, s.n_state, s.n_post, s.n_out = (nn.Parameter(torch.ones(H)) for _ in range(4))
        ang = torch.outer(torch.arange(T + S + 1.0), 10000.0 ** (-torch.arange(0, D, 2) / D)).repeat(1, 2)
        s.register_buffer('cos', ang.cos())
        s.register_buffer('sin', ang.sin())
        s.register_buffer('mask', torch.full((T, T), float('-inf')).triu(1))

    def rope(s, x, at):  # [B, T, heads, D]
        c, n = s.cos[at:at + T, None], s.sin[at:at + T, None]
        x1, x2 = x.chunk(2, -1)
        return x * c + torch.cat((-x2, x1), -1) * n

    def step(s, k, e, g, first, later):
        """Step k: e [B, T, H] embeddings, g [B, T, H] what is fed; first (keys, values) of step 0, later those of each step after."""
        m = F.rms_norm(g, (H,), s.n_state, 1e-5)
        u = torch.cat((F.rms_norm(e, (H,), s.n_in, 1e-5), m), -1)
        q, key, v = s.qkv(u).unflatten(-1, (NH + 2 * KV, D)).split((NH, KV, KV), -2)
        q, key = s.rope(q, k), s.rope(key, k)
        rep = lambda t: t.repeat_interleave(NH // KV, -2)
        if k == 0:
            first = (rep(key).transpose(1, 2), rep(v).transpose(1, 2))
            att = F.scaled_dot_product_attention(q.transpose(1, 2), *first, is_causal=True)
        else:
            later = later + [(rep(key), rep(v))]
            q = q * D ** -0.5
            sc = torch.matmul(q.transpose(1, 2), first[0].transpose(2, 3)) + s.mask
            own = torch.stack([(q * kk).sum(-1) for kk, _ in later], -1).transpose(1, 2)  # [B, heads, T, steps]
            pr = torch.softmax(torch.cat((sc, own), -1), -1)
            att = torch.matmul(pr[..., :T], first[1])
            for j, (_, vv) in enumerate(later):
                att = att + pr[..., T + j:T + j + 1] * vv.transpose(1, 2)
        x = g + s.o(att.transpose(1, 2).reshape(B, T, NH * D))
        gate, up = s.gu(F.rms_norm(x, (H,), s.n_post, 1e-5)).chunk(2, -1)
        x = x + s.down(F.silu(gate) * up)
        return x, F.rms_norm(x, (H,), s.n_out, 1e-5), first, later


def loss_of(head, d, form):
    g, first, later, outs = head.fc(d['taps']), None, [], []
    ce = plain_ce if form == 'plain' else FusedCE.apply
    for k in range(S):
        g, out, first, later = head.step(k, F.embedding(d['tokens'][:, k:k + T], E), g, first, later)
        outs.append(out.reshape(-1, H))
    s = [torch.full((B * T,), 0.8 ** k) for k in range(S)]
    if form == 'joint':
        return ce(torch.cat(outs), head.lm.weight, torch.cat(d['idx']), torch.cat(d['p']), torch.cat(s)) / (B * T)
    return sum(ce(outs[k], head.lm.weight, d['idx'][k], d['p'][k], s[k]) for k in range(S)) / (B * T)


head, E = Head(), torch.randn(V, H) * 0.02
p = [torch.softmax(2 * torch.randn(B * T, K + 1), -1)[:, :K].contiguous() for _ in range(S)]
idx = [(torch.randint(V, (B * T, 1)) + torch.arange(K) * 5) % V for _ in range(S)]
data = dict(tokens=torch.randint(V, (B, T + S)), taps=torch.randn(B, T, 3 * H), idx=idx, p=p)

if a.check:
    ps = list(head.parameters())
    want = torch.autograd.grad(loss_of(head, data, 'plain'), ps)
    for form in ('fused', 'joint'):
        got = torch.autograd.grad(loss_of(head, data, form), ps)
        print(form, 'and plain, largest relative difference of gradients', max(((x - y).norm() / y.norm()).item() for x, y in zip(got, want)))
    # The last step of each root alone: one query row over all keys that it may see.
    with torch.no_grad():
        g, first, later = head.fc(data['taps']), None, []
        for k in range(S):
            before = g
            g, _, first, later = head.step(k, F.embedding(data['tokens'][:, k:k + T], E), g, first, later)
        worst = 0.0
        for i in range(T):
            m = F.rms_norm(before, (H,), head.n_state, 1e-5)
            u = torch.cat((F.rms_norm(F.embedding(data['tokens'][:, S - 1:S - 1 + T], E), (H,), head.n_in, 1e-5), m), -1)
            q = head.rope(head.qkv(u).unflatten(-1, (NH + 2 * KV, D))[..., :NH, :], S - 1)[:, i]
            keys = torch.cat([first[0][:, :, :i + 1]] + [kk[:, i, :, None] for kk, _ in later], 2)
            values = torch.cat([first[1][:, :, :i + 1]] + [vv[:, i, :, None] for _, vv in later], 2)
            att = torch.softmax((keys * q[:, :, None]).sum(-1) * D ** -0.5, -1)[..., None].mul(values).sum(2)
            x = before[:, i] + head.o(att.reshape(B, NH * D))
            gate, up = head.gu(F.rms_norm(x, (H,), head.n_post, 1e-5)).chunk(2, -1)
            worst = max(worst, (x + head.down(F.silu(gate) * up) - g[:, i]).abs().max().item())
    print('rows alone and in steps, largest difference', worst)
    sys.exit()

opt = torch.optim.AdamW(head.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.01, fused=True)


def step():
    opt.zero_grad(set_to_none=True)
    loss = loss_of(head, data, a.head)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
    opt.step()
    return loss.item()


step()
times, cpu = [], time.process_time()
for _ in range(a.measured):
    t = time.perf_counter()
    last = step()
    times.append(time.perf_counter() - t)
cpu = (time.process_time() - cpu) / a.measured  # means, as talf's benchmark prints them
print(json.dumps(dict(torch=torch.__version__, size=a.size, head=a.head, threads=a.threads, step_ms=round(1e3 * statistics.mean(times), 1), cpu_ms=round(1e3 * cpu, 1),
                      import_mib=import_mib, peak_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, loss=round(last, 3))))
