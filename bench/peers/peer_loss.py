"""A side that trains in PyTorch and tells its validation loss.

Its argument is an object of JSON, the settings of loss.py; it answers with the events
of `engine run --json` that loss.py reads.
"""

import argparse
import contextlib
import json
import math
import os
import sys


def encode(o, torch):
    """The ids of the text, and how many there can be."""
    with open(o.text, "rb") as f:
        text = f.read()
    if o.tokenizer == "bytes":
        return torch.frombuffer(bytearray(text), dtype=torch.uint8).long(), o.vocab
    text = text.decode("utf-8")
    ids = {c: i for i, c in enumerate(sorted(set(text)))}
    return torch.tensor([ids[c] for c in text]), len(ids)


def model_of(o, vocab, torch):
    """GPT-2 with weights by its rule; the same ones for the same seed."""
    from models import GPT

    torch.manual_seed(o.seed)
    model = GPT(o.layers, o.hidden, o.heads, vocab, o.context)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            onto_residual = name.endswith(("projection.weight", "down.weight"))
            torch.nn.init.normal_(p, std=0.02 / math.sqrt(2 * o.layers) if onto_residual else 0.02)
        elif name.endswith("bias"):
            torch.nn.init.zeros_(p)
        else:
            torch.nn.init.ones_(p)
    return model


def rate(o, step):
    """The learning rate of a step, counted from 1, as Troupe has it."""
    if step <= o.warmup_steps:
        return o.lr * step / (o.warmup_steps + 1)
    at = (step - 1 - o.warmup_steps) / max(1, o.steps - o.warmup_steps - 1)
    return o.min_lr + 0.5 * (1 + math.cos(math.pi * at)) * (o.lr - o.min_lr)


def windows(ids, starts, context, torch):
    """The tokens and targets of windows."""
    return torch.stack([ids[i : i + context] for i in starts]), torch.stack([ids[i + 1 : i + 1 + context] for i in starts])


def validation(n, o):
    """Where the windows of a validation text of n tokens begin: Troupe's, evenly spread, none over another."""
    count = min(o.eval_batches * o.sequences, (n - 1) // o.context)
    return [(n - 1) * i // count for i in range(count)]


def main():
    o = argparse.Namespace(**json.loads(sys.argv[1]))
    for name in "OMP_NUM_THREADS", "MKL_NUM_THREADS":
        os.environ[name] = str(o.threads)
    import torch

    torch.set_num_threads(o.threads)
    say = lambda **event: print(json.dumps(event), flush=True)
    ids, vocab = encode(o, torch)
    cut = int(len(ids) * (1 - o.val_fraction))
    text, held_out = ids[:cut], ids[cut:]
    places = validation(len(held_out), o)
    model = model_of(o, vocab, torch)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": o.weight_decay}, {"params": rest, "weight_decay": 0.0}],
        lr=o.lr, betas=(o.beta1, o.beta2), eps=o.eps, fused=True,
    )
    mixed = lambda: torch.autocast("cpu", torch.bfloat16) if o.dtype == "bfloat16" else contextlib.nullcontext()
    draw = torch.Generator().manual_seed(o.seed)
    say(event="start", parameters=sum(p.numel() for p in model.parameters()), eval_windows=len(places))
    for step in range(1, o.steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(o, step)
        at = torch.randint(len(text) - o.context, (o.sequences,), generator=draw).tolist()
        with mixed():
            loss = model(*windows(text, at, o.context, torch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), o.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        say(event="step", step=step, loss=loss.item())
    total = 0.0
    with torch.inference_mode():
        for i in range(0, len(places), o.sequences):
            at = places[i : i + o.sequences]
            with mixed():
                total += len(at) * model(*windows(held_out, at, o.context, torch)).item()
    say(event="end", val_loss=total / len(places))


main()
