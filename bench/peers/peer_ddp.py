"""A side that trains in DistributedDataParallel over Gloo: two processes, a thread each.

This process is rank 0. It reads numbers of steps and answers as peer_step.py does.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import sys
import time

CONTEXT, VOCAB = 256, 256  # "gpt" of models.py


def rank(o, r, port, lines, say):
    """Train as one rank; rank 0 reads lines and tells how long it took."""
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import models
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=r, world_size=o.ranks)
    model = models.build("gpt")
    parameters = list(model.parameters())
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    run = torch.compile(parallel) if o.mode == "compiled" else parallel
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}],
        lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True,
    )
    text = torch.randint(VOCAB, (64 * (CONTEXT + 1),))
    own, size = o.microbatches // o.ranks, o.sequences // o.microbatches  # microbatches of this rank, and their sequences

    def step():
        for i in range(own):
            at = torch.randint(len(text) - CONTEXT, (size,)).tolist()
            x = torch.stack([text[j : j + CONTEXT] for j in at])
            y = torch.stack([text[j + 1 : j + 1 + CONTEXT] for j in at])
            with contextlib.nullcontext() if i == own - 1 else parallel.no_sync():
                (run(x, y) / own).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    say(event="ready", parameters=sum(p.numel() for p in parameters), tokens_per_step=o.sequences * CONTEXT)
    steps = torch.zeros(1, dtype=torch.int64)
    while True:
        if r == 0:
            steps[0] = int(next(lines, 0))
        dist.broadcast(steps, 0)
        if (n := steps.item()) == 0:
            break
        dist.barrier()
        began = time.perf_counter()
        for _ in range(n):
            step()
        dist.barrier()
        say(event="steps", steps=n, ms=1000 * (time.perf_counter() - began))
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--microbatches", type=int, default=2)
    p.add_argument("--sequences", type=int, default=16)
    p.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    o = p.parse_args()
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    start = multiprocessing.get_context("spawn").Process
    others = [start(target=rank, args=(o, r, port, iter(()), quiet), daemon=True) for r in range(1, o.ranks)]
    for process in others:
        process.start()
    rank(o, 0, port, iter(sys.stdin.readline, ""), lambda **event: print(json.dumps(event), flush=True))
    for process in others:
        process.join()


def quiet(**_):
    """Rank 0 speaks for all."""


if __name__ == "__main__":
    main()
