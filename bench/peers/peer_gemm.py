"""A side that multiplies matrices: with numpy (OpenBLAS) or torch (oneDNN, MKL).

It reads lines such as "256x768x768 nn", as `engine bench gemm --on-request` does,
and answers each with its times.
"""

import argparse
import json
import os
import sys
import time

LEAST_SAMPLE_S = 0.002
LEAST_SAMPLES = 3


def numpy_product(m, n, k, form, _):
    """A function that computes C = A·B into memory that is there."""
    import numpy as np

    random = np.random.default_rng(1)
    draw = lambda *shape: random.standard_normal(shape, dtype=np.float32)
    a = draw(k, m).T if form[0] == "t" else draw(m, k)
    b = draw(n, k).T if form[1] == "t" else draw(k, n)
    c = draw(m, n)
    return lambda: np.dot(a, b, out=c)


def torch_product(m, n, k, form, dtype):
    """The same in torch."""
    import torch

    draw = lambda *shape: torch.randn(*shape).to(getattr(torch, dtype))
    a = draw(k, m).T if form[0] == "t" else draw(m, k)
    b = draw(n, k).T if form[1] == "t" else draw(k, n)
    c = draw(m, n)
    return lambda: torch.mm(a, b, out=c)


def sample(work, seconds):
    """Times of one call in milliseconds, sorted; as `engine bench` takes them."""

    def took(n):
        began = time.perf_counter()
        for _ in range(n):
            work()
        return time.perf_counter() - began

    took(1)
    n = 1 + int(LEAST_SAMPLE_S / max(took(1), 1e-6))
    times, end = [], time.perf_counter() + seconds
    while len(times) < LEAST_SAMPLES or time.perf_counter() < end:
        times.append(1000 * took(n) / n)
    return sorted(times)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--library", choices=["numpy", "torch"], required=True)
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--seconds", type=float, default=0.3)
    o = p.parse_args()
    # The libraries read these when they are loaded.
    for name in "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS":
        os.environ[name] = str(o.threads)
    product = torch_product if o.library == "torch" else numpy_product
    if o.library == "torch":
        import torch

        torch.set_num_threads(o.threads)
        torch.set_grad_enabled(False)
    for line in sys.stdin:
        shape, form = line.split()
        m, n, k = map(int, shape.split("x"))
        times = sample(product(m, n, k, form, o.dtype), o.seconds)
        median = times[len(times) // 2]
        print(json.dumps({"ms": {"median": median}, "gflops": {"median": 2e-6 * m * n * k / median}}), flush=True)


main()
