"""What pipeline.py and forecast.py train: "gpt" of models.py as Troupe's configuration."""

import json
import random

SEQUENCES, CONTEXT = 16, 256
SKIP = 2  # steps that allocate and touch memory

CONFIG = """
[run]
steps = {steps}
name = "{name}"
eval_every = 0
checkpoint_every = 0
[model]
family = "gpt2"
layers = 6
heads = 6
hidden = 384
context = 256
tie_embeddings = {tied}
[data]
train = ["text"]
invalid_utf8 = "bytes"
[batch]
sequences = 16
microbatch = {microbatch}
[pipeline]
stages = 2
chunks = {chunks}
schedule = "{schedule}"
"""


def write(folder, name, steps, microbatches, chunks, schedule, tied):
    """Write a configuration and its text, and return the configuration's path."""
    (folder / "text").write_bytes(random.Random(1).randbytes(1 << 18))
    path = folder / f"{name}.toml"
    path.write_text(CONFIG.format(name=name, steps=steps + SKIP, microbatch=SEQUENCES // microbatches,
                                  chunks=chunks, schedule=schedule, tied="true" if tied else "false"))
    return path


def step_ms(folder, name):
    """What each step of a run in a folder took, without the first ones."""
    lines = map(json.loads, next(folder.rglob(f"{name}/metrics.jsonl")).read_text().splitlines())
    return [line["step_ms"] for line in lines if "step_ms" in line][SKIP:]  # others are validations alone
