"""What training in bfloat16 costs in loss: Troupe beside PyTorch's autocast.

Trains each configuration in each type and prints two Markdown tables: the validation
losses after the last step, and each side's difference between its types. For a seed a
side has the same initial weights and the same windows in all types; the two sides draw
their own.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from side import ENGINE, Refused, Side, head, python, row

EVERY = 10**6  # batches of validation: more than there are
TOLERANCE, TIMES = 0.005, 2  # what Troupe may differ by, or so many times what PyTorch does
PROGRESS = 50  # steps between lines on stderr

# "chars" is examples/chars/config.toml. The ids of "bytes" are the first 256 of a vocabulary.
CONFIGURATIONS = {
    "chars": {
        "layers": 4, "hidden": 128, "heads": 4, "context": 64, "tokenizer": "chars", "vocab": 0, "sequences": 12, "eval_batches": EVERY,
        "lr": 1e-3, "min_lr": 1e-4, "warmup_steps": 100, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0,
    },
    "gpt2-124m": {
        "layers": 12, "hidden": 768, "heads": 12, "context": 128, "tokenizer": "bytes", "vocab": 50257, "sequences": 2, "eval_batches": 50,
        "lr": 3e-4, "min_lr": 3e-5, "warmup_steps": 20, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0,
    },
}
SEEDS = {"chars": 3, "gpt2-124m": 1}

# By side and type: device.dtype and device.residual, or the type of PyTorch's autocast.
TYPES = {
    ("Troupe", "float32"): ("float32", "float32"),
    ("Troupe", "bfloat16"): ("bfloat16", "bfloat16"),
    ("Troupe", "bfloat16, residual float32"): ("bfloat16", "float32"),
    ("PyTorch", "float32"): ("float32",),
    ("PyTorch", "autocast bfloat16"): ("bfloat16",),
}

CONFIG = """
[run]
name = "loss"
out = "out"
steps = {steps}
seed = {seed}
eval_every = {steps}
eval_batches = {eval_batches}
checkpoint_every = 0
[model]
family = "gpt2"
layers = {layers}
hidden = {hidden}
heads = {heads}
context = {context}
vocab = {vocab}
dropout = 0.0
tie_embeddings = true
[data]
train = [{text}]
val_fraction = {val_fraction}
val_split = "tail"
tokenizer = "{tokenizer}"
[batch]
sequences = {sequences}
[optimizer]
name = "adamw"
lr = {lr}
min_lr = {min_lr}
warmup_steps = {warmup_steps}
decay = "cosine"
beta1 = {beta1}
beta2 = {beta2}
eps = {eps}
weight_decay = {weight_decay}
clip_norm = {clip_norm}
[pipeline]
stages = 1
[device]
kind = "cpu"
dtype = "{dtype}"
residual = "{residual}"
threads = {threads}
"""


def follow(name, side):
    """Read what a side tells of its training, and return its first and its last event."""
    start = event = side.read()
    while event["event"] != "end":
        if event["event"] == "step" and event["step"] % PROGRESS == 0 and "loss" in event:
            print(f"{name}: step {event['step']}, loss {event['loss']:.4f}", file=sys.stderr, flush=True)
        event = side.read()
    side.close()
    if event["val_loss"] is None:
        raise Refused(f"{name}: the validation loss is not a number")
    print(f"{name}: validation loss {event['val_loss']:.4f}", file=sys.stderr, flush=True)
    return start, event


def train(o, name, side, how, settings):
    """Train once in a process of its own; returns what must be equal on both sides, and the validation loss."""
    name = f"{name}, {side} {how}, seed {settings['seed']}"
    types = TYPES[side, how]
    with tempfile.TemporaryDirectory() as folder:
        if side == "Troupe":
            config = Path(folder, "config.toml")
            config.write_text(CONFIG.format(**{**settings, "text": json.dumps(settings["text"])}, dtype=types[0], residual=types[1]), encoding="utf-8")
            command = [o.engine.resolve(), "run", config, "--json", "--set", f"run.out={Path(folder, 'out')}"]
        else:
            command = python("peer_loss.py", json.dumps({**settings, "dtype": types[0]}))
        start, end = follow(name, Side(name, command))
    return (start["parameters"], start["eval_windows"]), end["val_loss"]


def measure(o, name):
    """Print the losses of a configuration, and return their means by side and type."""
    c = CONFIGURATIONS[name]
    settings = {**c, "steps": o.steps, "warmup_steps": min(c["warmup_steps"], o.steps), "threads": o.threads,
                "text": str(o.text.resolve()), "val_fraction": 0.1}
    means, kinds = {}, set()
    for side, how in TYPES:
        losses = []
        for seed in range(1, (o.seeds or SEEDS[name]) + 1):
            kind, loss = train(o, name, side, how, {**settings, "seed": seed})
            kinds.add(kind)
            losses.append(loss)
        if len(kinds) > 1:
            raise SystemExit(f"{name}: the sides differ in (parameters, validation windows): {kinds}")
        means[side, how] = statistics.fmean(losses)
        row(name, side, how, ", ".join(f"{l:.4f}" for l in losses), f"{means[side, how]:.4f}")
    return means


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--text", type=Path, required=True, help="file to train on, UTF-8; its last tenth is for validation")
    p.add_argument("--engine", type=Path, default=ENGINE, help="the program to measure (default: %(default)s)")
    p.add_argument("--configurations", nargs="+", choices=CONFIGURATIONS, default=list(CONFIGURATIONS), help="default: all")
    p.add_argument("--steps", type=int, default=200, help="of each training (default: %(default)s)")
    p.add_argument("--seeds", type=int, help=f"number of them (default: {', '.join(f'{n} of {c}' for c, n in SEEDS.items())})")
    p.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    o = p.parse_args()
    head("configuration", "side", "type", "validation loss by seed", "mean")
    try:
        means = {name: measure(o, name) for name in o.configurations}
    except Refused as e:
        raise SystemExit(e)
    print()
    head("configuration", "Troupe's type", "bfloat16 − float32", "PyTorch's", "allowed", "within")
    for name, mean in means.items():
        theirs = mean["PyTorch", "autocast bfloat16"] - mean["PyTorch", "float32"]
        allowed = max(TOLERANCE, TIMES * abs(theirs))
        for (side, how), types in TYPES.items():
            if side == "Troupe" and types[0] == "bfloat16":
                ours = mean[side, how] - mean[side, "float32"]
                row(name, how, f"{ours:+.5f}", f"{theirs:+.5f}", f"±{allowed:.5f}", "yes" if abs(ours) <= allowed else "no")


main()
