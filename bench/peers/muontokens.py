"""Muon beside AdamW: tokens to the same validation loss on examples/chars, Troupe alone.

Both optimizers get the same list of peak learning rates, the same schedule (warm-up, then a cosine to a tenth) and the same
windows. Each begins in the middle of the list and goes on to the neighbors of its best rate, until both are worse. The lowest
validation loss of AdamW after all steps is the target. Muon then trains at its own best rate with a schedule of fewer and fewer
steps, as long as it reaches the target. Prints two Markdown tables, and the tokens of the shortest such run divided by AdamW's.
Exits with 1 if that is above --limit. It needs no peer.

--shape 30m trains a GPT-2 of 28 million parameters in its layers on the same text in bfloat16, 2,048 tokens a step: about 20 minutes on
two idle cores with AVX-512 BF16. Give --steps, --rates and --shares for more.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from side import ENGINE, head, row

CONFIG = Path(__file__).resolve().parent.parent.parent / "examples" / "chars" / "config.toml"


# What each shape changes in the example's configuration, and the defaults of options.
SHAPES = {
    "chars": {"keys": {}, "steps": 600, "rates": [1e-3, 2e-3, 4e-3, 8e-3, 16e-3], "shares": [0.9, 0.8, 0.7, 0.6, 0.5]},
    "30m": {
        "keys": {
            "model.layers": 9, "model.hidden": 512, "model.heads": 8, "model.context": 256, "batch.sequences": 8,
            "batch.microbatch": 4, "device.dtype": "bfloat16", "run.eval_batches": 8,
        },
        "steps": 80, "rates": [6.25e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 16e-3], "shares": [0.8, 0.65, 0.5],
    },
}  # fmt: skip


class Runs:
    """Trains, each run in a folder of its own."""

    def __init__(self, o, folder):
        self.o, self.folder, self.count = o, folder, 0

    def loss(self, optimizer, rate, steps):
        """The validation loss after the last step, and the tokens that were trained on."""
        self.count += 1
        out = Path(self.folder) / str(self.count)
        keys = {
            "run.out": out, "run.steps": steps, "run.eval_every": steps, "run.checkpoint_every": 0, "run.best": "none",
            "run.seed": self.o.seed, "optimizer.name": optimizer, "optimizer.lr": rate, "optimizer.min_lr": rate / 10,
            "optimizer.warmup_steps": steps // 20, "optimizer.decay": "cosine", "pipeline.stages": 1,
            "device.threads": self.o.threads, "data.train": json.dumps(self.o.text), **SHAPES[self.o.shape]["keys"],
        }
        command = [self.o.engine, "run", CONFIG, "--quiet"]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin", "TEXT": "unused"})
        lines = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
        last = [line for line in lines if line.get("val_loss") is not None][-1]
        assert last["step"] == steps, f"the last validation is of step {last['step']}, not of {steps}"
        return last["val_loss"], last["tokens"]

    def best(self, optimizer):
        """The lowest loss, its tokens and its rate, and the losses of all rates that were tried."""
        rates, tried = self.o.rates, {}
        at = len(rates) // 2
        while True:
            near = [k for k in (at, at - 1, at + 1) if 0 <= k < len(rates)]
            for k in near:
                if k not in tried:
                    tried[k] = self.loss(optimizer, rates[k], self.o.steps)
            best = min(near, key=lambda k: tried[k][0])
            if best == at:
                return (*tried[at], rates[at]), {rates[k]: loss for k, (loss, _) in tried.items()}
            at = best


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=ENGINE, help="the program to measure (default: %(default)s)")
    p.add_argument("--text", nargs="+", required=True, help="files of text, about a megabyte")
    p.add_argument("--shape", choices=list(SHAPES), default="chars", help="default: %(default)s")
    p.add_argument("--steps", type=int, help="of AdamW (default: 600, with --shape 30m 80)")
    p.add_argument("--rates", type=float, nargs="+", help="in ascending order (default: doubled from 1e-3 to 16e-3, with --shape 30m from 6.25e-5)")
    p.add_argument("--shares", type=float, nargs="+", help="of AdamW's steps (default: 0.9 to 0.5, with --shape 30m 0.8, 0.65 and 0.5)")
    p.add_argument("--limit", type=float, default=0.8, help="largest quotient of the tokens (default: %(default)s)")
    p.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    p.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    o = p.parse_args()
    for key in ("steps", "rates", "shares"):
        if getattr(o, key) is None:
            setattr(o, key, SHAPES[o.shape][key])
    o.text = [str(Path(text).resolve()) for text in o.text]
    best = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(o, folder)
        head("optimizer", *(f"lr {rate:g}" for rate in o.rates))
        for name in ("adamw", "muon"):
            best[name], losses = runs.best(name)
            row(name, *(f"{losses[rate]:.4f}" if rate in losses else "" for rate in o.rates))
            if best[name][2] in (o.rates[0], o.rates[-1]):
                print(f"{name} is best at an end of the rates: give more", file=sys.stderr)
        target, tokens, _ = best["adamw"]
        least = best["muon"][1] if best["muon"][0] <= target else None
        print()
        head("Muon's steps", "tokens", "validation loss", f"reaches AdamW's {target:.4f}")
        for share in sorted(o.shares, reverse=True):
            loss, used = runs.loss("muon", best["muon"][2], max(20, round(share * o.steps)))
            row(f"{share:g}", used, f"{loss:.4f}", "yes" if loss <= target else "no")
            if loss > target:
                break
            least = used
    if least is None:
        print("\nMuon does not reach AdamW's loss")
        return 1
    print(f"\nMuon needs {least / tokens:.2f} of AdamW's tokens (limit {o.limit:g})")
    return 0 if least / tokens <= o.limit else 1


if __name__ == "__main__":
    sys.exit(main())
