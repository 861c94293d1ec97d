"""A side that runs a model's operations one by one in PyTorch.

It prints a line of JSON for each, as `engine bench ops --json` does; and first two for what
bounds them: a copy and a large product.
"""

import argparse
import json
import os
import time

LEAST_SAMPLE_S = {"cpu": 0.002, "cuda": 0.02}  # long enough that starting and ending it don't show
LEAST_SAMPLES = 3
MAX_REPEAT = 10_000


class Clock:
    """Times repetitions: by events on a GPU, where launches run ahead, by the wall elsewhere."""

    def __init__(self, torch, device, seconds):
        self.torch, self.device, self.seconds = torch, device, seconds

    def took(self, work, n):
        """The seconds of n repetitions."""
        if self.device == "cpu":
            began = time.perf_counter()
            for _ in range(n):
                work()
            return time.perf_counter() - began
        began, ended = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        for _ in range(n):
            work()
        ended.record()
        ended.synchronize()
        return began.elapsed_time(ended) / 1000

    def ms(self, work):
        """The median of the time of one repetition."""
        least = LEAST_SAMPLE_S[self.device]
        n = 1
        self.took(work, n)
        for _ in range(2):  # one alone may wait for more than its work
            each = max(self.took(work, n) / n, 1e-7)
            n = max(n, min(MAX_REPEAT, 1 + int(least / each)))
        times, end = [], time.perf_counter() + self.seconds
        while len(times) < LEAST_SAMPLES or time.perf_counter() < end:
            times.append(1000 * self.took(work, n) / n)
        return sorted(times)[len(times) // 2]


class Operations:
    """A model's operations at the sizes of a step, each as (name, type, work)."""

    def __init__(self, torch, o):
        from models import CONTEXT, MODELS, build

        self.torch, self.o = torch, o
        self.context = o.context or CONTEXT
        _, self.vocab, sequences = MODELS[o.model]
        self.sequences = o.sequences or sequences
        self.rows = self.sequences * self.context
        self.model = build(o.model, self.context).to(o.device)
        self.block = self.model.blocks[0]
        self.gpt = hasattr(self.block, "qkv")

    def draw(self, *shape, dtype="float32"):
        return self.torch.randn(*shape, device=self.o.device).to(getattr(self.torch, dtype))

    def all(self):
        for group in self.bounds, self.norms, self.linears, self.attention, self.loss, self.update:
            yield from group()

    def bounds(self):
        """What nothing is faster than: moving memory, multiplying."""
        torch, large = self.torch, self.o.device == "cuda"
        a = self.draw(2**28 if large else 2**26)
        b = torch.empty_like(a)
        yield "copy of memory", "float32", lambda: b.copy_(a), {"bytes": 2 * 4 * a.numel()}
        del a, b
        n = 8192 if large else 2048
        a, b = self.draw(n, n, dtype=self.o.dtype), self.draw(n, n, dtype=self.o.dtype)
        c = torch.empty_like(a)
        yield "large product", self.o.dtype, lambda: torch.mm(a, b, out=c), {"flops": 2 * n**3}

    def backward(self, out, inputs):
        """A function that takes the gradients of inputs again."""
        grad = self.torch.randn_like(out)
        return lambda: self.torch.autograd.grad(out, inputs, grad, retain_graph=True)

    def norms(self):
        norm = self.block.norm1
        name = "LayerNorm" if self.gpt else "RMSNorm"
        x = self.draw(self.rows, norm.normalized_shape[0]).requires_grad_()
        with self.torch.no_grad():
            yield name, "float32", lambda: norm(x), {}
        yield f"{name}, backward", "float32", self.backward(norm(x), [x, *norm.parameters()]), {}

    def linears(self):
        F, b = self.torch.nn.functional, self.block
        if self.gpt:
            linears = {"qkv": b.qkv}
        else:
            linears = {"query": b.q, "key, value": b.k}
        linears |= {"projection": b.projection, "up": b.up, "down": b.down, "head": self.model.head}
        for name, linear in linears.items():
            with self.torch.no_grad():
                w = linear.weight.detach().to(getattr(self.torch, self.o.dtype))
                bias = None if linear.bias is None else linear.bias.detach().to(w.dtype)
                x, dy = self.draw(self.rows, w.shape[1], dtype=self.o.dtype), self.draw(self.rows, w.shape[0], dtype=self.o.dtype)
                yield name, self.o.dtype, lambda: F.linear(x, w, bias), {}
                yield f"{name}, gradient", self.o.dtype, lambda: dy @ w, {}
                yield f"{name}, weight gradient", self.o.dtype, lambda: dy.T @ x, {}

    def attention(self):
        b, hidden = self.block, self.block.projection.in_features
        heads = b.heads if self.gpt else hidden // b.width
        kv = heads if self.gpt else b.k.out_features // b.width
        draw = lambda n: self.draw(self.sequences, self.context, n, hidden // heads, dtype=self.o.dtype).transpose(1, 2).requires_grad_()
        q, k, v = draw(heads), draw(kv), draw(kv)
        attend = lambda: self.torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv != heads)
        with self.torch.no_grad():
            yield "attention", self.o.dtype, attend, {}
        yield "attention, gradient", self.o.dtype, self.backward(attend(), [q, k, v]), {}

    def loss(self):
        logits = self.draw(self.rows, self.vocab).requires_grad_()
        targets = self.torch.randint(self.vocab, (self.rows,), device=self.o.device)
        entropy = self.torch.nn.functional.cross_entropy
        yield "cross-entropy with its gradient", "float32", lambda: self.torch.autograd.grad(entropy(logits, targets), logits), {}

    def update(self):
        for p in self.model.parameters():
            p.grad = self.torch.randn_like(p)
        optimizer = self.torch.optim.AdamW(self.model.parameters(), lr=1e-4, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True)
        yield "AdamW, all parameters", "float32", optimizer.step, {}


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", required=True)
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of products and attention")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--sequences", type=int, default=0)
    p.add_argument("--context", type=int, default=0)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--seconds", type=float, default=0.2, help="for each operation (default: %(default)s)")
    o = p.parse_args()
    for name in "OMP_NUM_THREADS", "MKL_NUM_THREADS":
        os.environ[name] = str(o.threads)
    import torch

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    clock = Clock(torch, o.device, o.seconds)
    for name, dtype, work, more in Operations(torch, o).all():
        print(json.dumps({"op": name, "dtype": dtype, "ms": {"median": clock.ms(work)}, **more}), flush=True)


main()
