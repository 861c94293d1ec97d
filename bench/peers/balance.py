"""Whether methods to balance the loads of experts do so, on a text: 500 steps of a small model with each.

Prints a Markdown table: the coefficient of variation of the experts' loads (0: all equal) and the
largest load as a multiple of the mean, the mean over the layers and over the first and the last
50 steps, and the loss over the last 50. All runs have the same weights and tokens. Troupe alone.

    python3 balance.py --text FILE
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from side import ENGINE, head, row

CONFIG = """
[run]
name = "{name}"
steps = {steps}
eval_every = 0
checkpoint_every = 0
[model]
family = "deepseek_v3"
layers = 3
hidden = 64
heads = 4
context = 64
experts = 8
experts_per_token = 2
expert_ffn = 64
first_k_dense_replace = 0
[data]
train = ["text"]
tokenizer = "chars"
[batch]
sequences = 16
microbatch = 16
[optimizer]
lr = 3e-3
warmup_steps = 20
[pipeline]
stages = 1
"""

NONE = ["model.aux_loss_weight=0", "model.router_bias_update_rate=0"]
METHODS = {
    "none": NONE,
    "balance loss 0.01": ["model.aux_loss_weight=0.01", "model.router_bias_update_rate=0"],
    "balance loss of sequences 0.01": ["model.aux_loss_weight=0.01", "model.router_bias_update_rate=0", "model.load_balancing_type=seq_aux_loss"],
    "biases, rate 0.01": ["model.aux_loss_weight=0", "model.router_bias_update_rate=0.01"],
    "z-loss 0.001 alone": [*NONE, "model.z_loss_weight=0.001"],
    "balance loss 0.01, z-loss 0.001": ["model.aux_loss_weight=0.01", "model.router_bias_update_rate=0", "model.z_loss_weight=0.001"],
}


def train(folder, o, number, method):
    """The lines of a run's steps."""
    config = folder / f"r{number}.toml"
    config.write_text(CONFIG.format(name=f"r{number}", steps=o.steps))
    command = [o.engine, "run", config, "--quiet"]
    for set in METHODS[method]:
        command += ["--set", set]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    lines = map(json.loads, next(folder.rglob(f"r{number}/metrics.jsonl")).read_text().splitlines())
    return [{"loss": line["loss"], **line["metrics"]} for line in lines if "expert_load_cv" in line.get("metrics", {})]


def mean(lines, key):
    """The mean of a number over steps."""
    return statistics.fmean(line[key] for line in lines)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--engine", default=ENGINE)
    p.add_argument("--text", required=True, help="the text to train on")
    p.add_argument("--steps", type=int, default=500, help="default: %(default)s")
    p.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="default: all")
    o = p.parse_args()
    head("method", "CV, steps 1 to 50", "CV, last 50", "largest load / mean, last 50", "loss, last 50")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "text").write_bytes(Path(o.text).read_bytes())
        for number, method in enumerate(o.methods):
            lines = train(folder, o, number, method)
            if len(lines) < 100:
                raise SystemExit(f"{method}: {len(lines)} steps with loads, want at least 100")
            first, last = lines[:50], lines[-50:]
            row(method, f"{mean(first, 'expert_load_cv'):.3f}", f"{mean(last, 'expert_load_cv'):.3f}", f"{mean(last, 'expert_load_max_ratio'):.2f}",
                f"{mean(last, 'loss'):.3f}")


main()
