"""A side that trains in torch.distributed.pipelining over Gloo: a process for each rank.

This process is rank 0. It reads numbers of steps and answers as peer_step.py does.
"""

import argparse
import json
import multiprocessing
import os
import socket
import sys
import time

HIDDEN, HEADS, LAYERS, CONTEXT, VOCAB = 384, 6, 6, 256, 256  # "gpt" of models.py


def cut(torch, chunks):
    """The model's chunks: layers dealt out evenly, the embedding first, the head last."""
    import torch.nn.functional as F
    from models import GPTBlock
    from torch import nn

    class Chunk(nn.Module):
        def __init__(self, i):
            super().__init__()
            first, last = LAYERS * i // chunks, LAYERS * (i + 1) // chunks
            self.first, self.last = i == 0, i == chunks - 1
            if self.first:
                self.tokens, self.positions = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(CONTEXT, HIDDEN)
            self.blocks = nn.ModuleList(GPTBlock(HIDDEN, HEADS) for _ in range(first, last))
            if self.last:
                self.norm, self.head = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)
            for p in self.parameters():
                if p.dim() > 1:
                    nn.init.normal_(p, std=0.02)

        def forward(self, x):
            if self.first:
                x = self.tokens(x) + self.positions.weight[: x.shape[1]]
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)) if self.last else x

    def loss(logits, targets):
        return F.cross_entropy(logits.view(-1, VOCAB), targets.view(-1))

    return Chunk, loss


def rank(o, r, port, lines, say):
    """Train as one rank; rank 0 reads lines and tells how long it took."""
    os.environ.update(OMP_NUM_THREADS=str(o.threads), MKL_NUM_THREADS=str(o.threads), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist
    from torch.distributed import pipelining

    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=r, world_size=o.ranks)
    chunks = o.ranks * o.chunks
    make, loss = cut(torch, chunks)
    own = [r + o.ranks * i for i in range(o.chunks)]
    modules = [make(i) for i in own]
    parameters = [p for m in modules for p in m.parameters()]
    if o.mode == "compiled":
        modules = [torch.compile(m) for m in modules]
    parts = [pipelining.PipelineStage(m, i, chunks, torch.device("cpu")) for m, i in zip(modules, own)]
    if o.chunks == 1:
        schedule = pipelining.Schedule1F1B(parts[0], o.microbatches, loss_fn=loss)
    else:
        schedule = pipelining.ScheduleInterleaved1F1B(parts, o.microbatches, loss_fn=loss)
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0}],
        lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True,
    )
    text = torch.randint(VOCAB, (64 * (CONTEXT + 1),))

    def clip():
        """Gradients by the norm of all ranks' gradients."""
        square = sum(p.grad.square().sum() for p in parameters)
        dist.all_reduce(square)
        scale = min(1.0, 1.0 / (square.sqrt().item() + 1e-6))
        if scale < 1:
            torch._foreach_mul_([p.grad for p in parameters], scale)

    def step():
        at = torch.randint(len(text) - CONTEXT, (o.sequences,)).tolist()
        ids = [torch.stack([text[i : i + CONTEXT] for i in at])] if r == 0 else []
        given = {}
        if r == o.ranks - 1:
            given = {"target": torch.stack([text[i + 1 : i + 1 + CONTEXT] for i in at]), "losses": []}
        schedule.step(*ids, **given)
        clip()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    count = torch.tensor(sum(p.numel() for p in parameters))
    dist.all_reduce(count)
    say(event="ready", parameters=count.item(), tokens_per_step=o.sequences * CONTEXT)
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
    p.add_argument("--chunks", type=int, default=1)
    p.add_argument("--microbatches", type=int, default=4)
    p.add_argument("--sequences", type=int, default=16)
    p.add_argument("--threads", type=int, default=1)
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
