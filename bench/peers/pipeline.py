"""A pipeline of two processes, a thread each: Troupe's --local-cluster beside
torch.distributed.pipelining over Gloo, the same model, schedule and microbatches.

Prints a Markdown table: tokens/s, medians over the rounds with what a tenth of the
rounds is below and above, and Troupe's speed by the peer's, round by round.
"""

import json
import random
import subprocess
import tempfile
from pathlib import Path

from side import Refused, Sides, head, options, parse, parser, python, ratios, row, spread

SCHEDULES = {"1f1b": 1, "interleaved": 2}  # chunks on each rank
SEQUENCES, CONTEXT = 16, 256
SKIP = 2  # steps that allocate and touch memory

CONFIG = """
[run]
steps = {steps}
eval_every = 0
checkpoint_every = 0
[model]
family = "gpt2"
layers = 6
heads = 6
hidden = 384
context = 256
tie_embeddings = false
[data]
train = ["text"]
[batch]
sequences = 16
microbatch = {microbatch}
[pipeline]
stages = 2
chunks = {chunks}
schedule = "{schedule}"
[device]
threads = {threads}
dtype = "float32"
"""


def ours(o, schedule, threads):
    """Tokens/s of a run of its own, without its first steps."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "text").write_bytes(random.Random(1).randbytes(1 << 18))
        (folder / "config.toml").write_text(CONFIG.format(
            steps=o.steps + SKIP, microbatch=SEQUENCES // o.microbatches, chunks=SCHEDULES[schedule], schedule=schedule, threads=2 * threads))  # of both workers together
        command = [options.engine, "run", folder / "config.toml", "--local-cluster", "2", "--quiet"]
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise Refused(f"{' '.join(map(str, command))}: {done.stderr}")
        metrics = next(folder.rglob("metrics.jsonl"))
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
        took = [s["step_ms"] for s in steps[SKIP:]]
        return 1000 * len(took) * SEQUENCES * CONTEXT / sum(took)


def main():
    p = parser(__doc__, rounds=7)
    p.set_defaults(threads=[1])
    p.add_argument("--microbatches", type=int, default=4, help="default: %(default)s")
    p.add_argument("--steps", type=int, default=8, help="of each turn (default: %(default)s)")
    p.add_argument("--modes", nargs="+", default=["eager"], help="of PyTorch: eager, compiled (default: eager)")
    o = parse(p)
    head("schedule", "threads a process", "Troupe, tokens/s", "PyTorch", "tokens/s", "Troupe / PyTorch")
    for schedule, chunks in SCHEDULES.items():
        for threads in o.threads:
            own, speeds = [], {mode: [] for mode in o.modes}
            with Sides() as sides:
                peers = [sides.add(m, python("peer_pipeline.py", "--chunks", chunks, "--microbatches", o.microbatches, "--threads", threads, "--mode", m))
                         for m in o.modes]
                for peer in peers:
                    peer.read()
                    peer.ask(SKIP)
                for _ in range(o.rounds):
                    own.append(ours(o, schedule, threads))
                    for peer in peers:
                        answer = peer.ask(o.steps)
                        speeds[peer.name].append(1000 * answer["steps"] * SEQUENCES * CONTEXT / answer["ms"])
            for mode, s in speeds.items():
                row(schedule, threads, spread(own), mode, spread(s), spread(ratios(own, s), 3))


main()
