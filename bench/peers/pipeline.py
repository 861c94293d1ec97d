"""A pipeline of two processes, a thread each: Troupe's --local-cluster beside
torch.distributed.pipelining over Gloo, the same model, schedule and microbatches.

Prints a Markdown table: tokens/s, medians over the rounds with what a tenth of the
rounds is below and above, and Troupe's speed by the peer's, round by round.
"""

import subprocess
import tempfile
from pathlib import Path

import runs
from side import Refused, Sides, head, options, parse, parser, python, ratios, row, spread

SCHEDULES = {"1f1b": 1, "interleaved": 2}  # chunks on each rank


def ours(o, schedule, threads):
    """Tokens/s of a run of its own, without its first steps."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        config = runs.write(folder, "run", o.steps, o.microbatches, SCHEDULES[schedule], schedule, tied=False)
        command = [options.engine, "run", config, "--local-cluster", "2", "--quiet",
                   "--set", "device.dtype=float32", "--set", f"device.threads={2 * threads}"]  # of both workers together
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise Refused(f"{' '.join(map(str, command))}: {done.stderr}")
        took = runs.step_ms(folder, "run")
        return 1000 * len(took) * runs.SEQUENCES * runs.CONTEXT / sum(took)


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
                    peer.ask(runs.SKIP)
                for _ in range(o.rounds):
                    own.append(ours(o, schedule, threads))
                    for peer in peers:
                        answer = peer.ask(o.steps)
                        speeds[peer.name].append(1000 * answer["steps"] * runs.SEQUENCES * runs.CONTEXT / answer["ms"])
            for mode, s in speeds.items():
                row(schedule, threads, spread(own), mode, spread(s), spread(ratios(own, s), 3))


main()
