"""Training steps of a mixture of experts: Troupe against transformers' Qwen3MoeForCausalLM, with each of its implementations of experts.

First the losses of some steps on the same windows, from the same weights: each side's loss of the first step, and how far those of
all steps are apart. Then the speed as step.py measures it, in alternate turns, of random weights and tokens. Neither side has a loss
that balances loads. transformers' batched_mm copies a matrix for each pair of a token and an expert, 12 GB for each layer of the first
shape: ask for it with --peers and a shape of your own.

Prints Markdown tables. Needs pip install transformers. Run it beside nothing else: see README.md.
"""

import contextlib
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import tempfile

from peer_experts import MODES
from side import Refused, Sides, engine, head, options, parse, parser, python, ratios, row, spread
from step import start, turns
from versions import interval

BASE = {"layers": 4, "hidden": 512, "heads": 8, "kv_heads": 4, "vocab": 8192, "context": 256, "sequences": 8}
SHAPES = {
    "32 experts": {**BASE, "experts": 32, "chosen": 4, "width": 384},
    "128 experts": {**BASE, "experts": 128, "chosen": 8, "width": 192},
}
LR = 1e-3  # of the losses that are compared
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
os.environ.update(TQDM_DISABLE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")

MODEL = """
[model]
family = "qwen3_moe"
layers = {layers}
hidden = {hidden}
heads = {heads}
kv_heads = {kv_heads}
ffn = {width}
experts = {experts}
experts_per_token = {chosen}
expert_ffn = {width}
vocab = {vocab}
context = {context}
tie_embeddings = false
rope_theta = 10000.0
aux_loss_weight = 0.0
dropout = 0.0
[batch]
sequences = {sequences}
microbatch = {microbatch}
[optimizer]
lr = 1e-4
warmup_steps = 0
decay = "constant"
"""

RUN = """
run = {{out = "{out}", steps = {steps}, seed = 1, eval_every = 0, checkpoint_every = 0, best = "none"}}
model = {{from = "{model}", context = {context}, aux_loss_weight = 0.0, dropout = 0.0}}
data = {{train = ["{train}"], val = ["{val}"], format = "uint16"}}
batch = {{sequences = {sequences}, microbatch = {microbatch}}}
optimizer = {{lr = {lr}, warmup_steps = 0, decay = "constant", beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.0, clip_norm = 0.0}}
pipeline = {{stages = 1}}
device = {{kind = "cpu", threads = {threads}, dtype = "{dtype}"}}
"""


def draw(path, sizes, windows):
    """Write ids of which small ones are frequent, so that there is something to learn, and loads differ."""
    ids = [int(sizes["vocab"] * random.random() ** 3) for _ in range(windows * (sizes["context"] + 1))]
    path.write_bytes(struct.pack(f"<{len(ids)}H", *ids))
    return ids


def our_losses(o, folder, sizes, dtype, threads):
    """The losses of Troupe's steps from the model in a folder."""
    out = folder / f"run-{dtype}"
    config = out.with_suffix(".toml")
    config.write_text(RUN.format(out=out, model=folder / "model", train=folder / "train", val=folder / "val", steps=o.steps, lr=LR,
                                 threads=threads, dtype=dtype, microbatch=o.microbatch or sizes["sequences"],
                                 context=sizes["context"], sequences=sizes["sequences"]))
    subprocess.run([options.engine, "run", config, "--quiet"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["step"] > 0]


def their_losses(o, torch, model, loss_of, windows, dtype):
    """The losses of steps of a model of transformers on the same windows."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    losses = []
    for rows in windows:
        with torch.autocast("cpu", torch.bfloat16) if dtype == "bfloat16" else contextlib.nullcontext():
            loss = loss_of(rows[:, :-1], rows[:, 1:].contiguous())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare_losses(o, name, sizes, threads):
    """Rows of the table of losses."""
    import torch

    import peer_experts

    torch.set_num_threads(threads)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        random.seed(1)
        ids = draw(folder / "train", sizes, 64)
        draw(folder / "val", sizes, 2)
        peer_experts.build(sizes, "eager", torch, "float32").save_pretrained(folder / "model")
        command = ["go", "run", "./bench/peers/windows", 1, len(ids), sizes["context"], o.steps * sizes["sequences"]]
        offsets = subprocess.run([str(c) for c in command], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        rows = torch.tensor([ids[int(at) : int(at) + sizes["context"] + 1] for at in offsets])
        windows = rows.split(sizes["sequences"])
        for dtype in o.dtypes:
            ours = our_losses(o, folder, sizes, dtype, threads)
            for mode in o.peers:
                if mode == "cast" and dtype == "float32":
                    continue
                model = peer_experts.build(sizes, mode, torch, dtype)
                theirs = their_losses(o, torch, model, peer_experts.loss_function(model, torch), windows, dtype)
                apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
                row(name, dtype, mode, f"{ours[0]:.6f}", f"{theirs[0]:.6f}", f"{ours[-1]:.6f}", f"{theirs[-1]:.6f}", f"{apart:.1e}")


def measure(o, sizes, dtype, threads):
    """Each side's tokens/s, by name; a side that ends before its first step is None."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config, Sides() as sides:
        config.write(MODEL.format(**sizes, microbatch=o.microbatch or sizes["sequences"]))
        config.flush()
        started = [start(sides, o, "Troupe", engine("step", "--config", config.name, "--dtype", dtype, "--threads", threads))]
        refused = []
        for mode in o.peers:
            if mode == "cast" and dtype == "float32":
                refused.append(mode)
                continue
            try:
                started.append(start(sides, o, mode, python("peer_experts.py", "--sizes", json.dumps(sizes), "--mode", mode, "--dtype", dtype,
                                                            "--threads", threads)))
            except Refused:
                refused.append(mode)
        return {**turns(o, started, f"{sizes['experts']} experts"), **{mode: None for mode in refused}}


def compare_speed(o, name, sizes, dtype, threads):
    """A row of the table of speeds."""
    try:
        speeds = measure(o, sizes, dtype, threads)
    except Refused as e:
        row(name, dtype, threads, e)
        return
    best = max((mode for mode in o.peers if speeds[mode]), key=lambda mode: statistics.median(speeds[mode]))
    by = ratios(speeds["Troupe"], speeds[best])
    low, high = interval(by)
    cells = [spread(speeds[side]) if speeds[side] else "–" for side in ["Troupe", *o.peers]]
    row(name, dtype, threads, *cells, best, f"{statistics.median(by):.2f}", f"{low:.2f}–{high:.2f}")


def main():
    p = parser(__doc__, rounds=7)
    p.set_defaults(threads=[os.cpu_count()])
    p.add_argument("--parts", nargs="+", choices=["losses", "speed"], default=["losses", "speed"])
    p.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    p.add_argument("--set", nargs="*", default=[], metavar="SIZE=NUMBER", help=f"sizes of all shapes, of {', '.join([*BASE, 'experts', 'chosen', 'width'])}")
    p.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    p.add_argument("--peers", nargs="+", choices=MODES, default=[m for m in MODES if m != "batched_mm"])
    p.add_argument("--seconds", type=float, default=3, help="of each turn, about (default: %(default)s)")
    p.add_argument("--microbatch", type=int, help="sequences of Troupe's microbatches (default: all of a step, as PyTorch takes them)")
    p.add_argument("--steps", type=int, default=5, help="whose losses are compared (default: %(default)s)")
    o = parse(p)
    shapes = {name: {**SHAPES[name], **{key: int(n) for key, n in (one.split("=") for one in o.set)}} for name in o.shapes}
    if "losses" in o.parts:
        head("shape", "type", "transformers by", "Troupe, first loss", "transformers", "Troupe, last loss", "transformers", "apart, at most")
        for name, sizes in shapes.items():
            compare_losses(o, name, sizes, o.threads[-1])
    if "speed" in o.parts:
        head("shape", "type", "threads", "Troupe, tokens/s", *[f"{mode}, tokens/s" for mode in o.peers], "the fastest", "Troupe by it", "95 %")
        for name, sizes in shapes.items():
            for dtype in o.dtypes:
                for threads in o.threads:
                    compare_speed(o, name, sizes, dtype, threads)


if __name__ == "__main__":
    main()
