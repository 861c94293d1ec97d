"""A side that trains in PyTorch, eager or compiled.

It reads numbers of steps and answers as `engine bench step --on-request` does.
"""

import argparse
import contextlib
import json
import os
import sys
import time


def status(key):
    """A line of the process's status, in bytes; 0 where the system has none."""
    try:
        with open("/proc/self/status") as f:
            return next((1024 * int(line.split()[1]) for line in f if line.startswith(key)), 0)
    except OSError:
        return 0


def trainer(o, torch):
    """Make the model and return (parameters, tokens in a step, a function that takes a step)."""
    from models import CONTEXT, MODELS, build

    context = o.context or CONTEXT
    torch.manual_seed(1)
    _, vocab, sequences = MODELS[o.model]
    model = build(o.model, context).to(o.device)
    loss_of = torch.compile(model) if o.mode == "compiled" else model
    return training(o, torch, model, loss_of, vocab, context, o.sequences or sequences)


def training(o, torch, model, loss_of, vocab, context, sequences):
    """What trainer returns, of a model and of a function that takes ids and targets and returns their loss."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-4, betas=(0.9, 0.95), eps=1e-8, fused=True,
    )
    mixed = torch.autocast(o.device, torch.bfloat16) if o.dtype == "bfloat16" else contextlib.nullcontext()
    text = torch.randint(vocab, (64 * (context + 1),))

    def step():
        at = torch.randint(len(text) - context, (sequences,)).tolist()
        ids = torch.stack([text[i : i + context] for i in at]).to(o.device)
        targets = torch.stack([text[i + 1 : i + 1 + context] for i in at]).to(o.device)
        with mixed:
            loss = loss_of(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return sum(p.numel() for p in model.parameters()), sequences * context, step


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", required=True)
    p.add_argument("--mode", choices=["eager", "compiled"], default="eager")
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--sequences", type=int, default=0)
    p.add_argument("--context", type=int, default=0)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    serve(p.parse_args(), trainer)


def serve(o, trainer):
    """Answer each number of steps, with what trainer returns."""
    for name in "OMP_NUM_THREADS", "MKL_NUM_THREADS":
        os.environ[name] = str(o.threads)
    import torch

    torch.set_num_threads(o.threads)
    held = status("VmRSS:")
    say = lambda **event: print(json.dumps(event), flush=True)
    parameters, tokens, step = trainer(o, torch)
    say(event="ready", parameters=parameters, tokens_per_step=tokens)
    for line in sys.stdin:
        n = int(line)
        began = time.perf_counter()
        for _ in range(n):
            step()
        if o.device == "cuda":
            torch.cuda.synchronize()
        say(event="steps", steps=n, ms=1000 * (time.perf_counter() - began))
    if o.device == "cuda":
        say(event="end", held_bytes=0, peak_bytes=torch.cuda.max_memory_reserved())
    else:
        say(event="end", held_bytes=held, peak_bytes=status("VmHWM:") - held)


if __name__ == "__main__":
    main()
