"""Two processes with a thread each that share a model's layers or its microbatches: beside one
process with two threads, and data parallelism beside DistributedDataParallel over Gloo.

Prints two Markdown tables: tokens/s, medians over the rounds with what a tenth of the rounds is below
and above, and ratios round by round.
"""

import subprocess
import tempfile
from pathlib import Path

import runs
from side import Refused, Sides, head, options, parse, parser, python, ratios, row, spread

ONE = "one process, 2 threads"
GRIDS = {
    ONE: [],
    "data 2": ["parallel.data=2"],
    "data 2, no overlap": ["parallel.data=2", "parallel.overlap=false"],
    "data 2, ZeRO-1": ["parallel.data=2", "parallel.zero=1"],
    "tensor 2": ["parallel.tensor=2"],
    "tensor 2, no overlap": ["parallel.tensor=2", "parallel.overlap=false"],
    "tensor 2, sequence": ["parallel.tensor=2", "parallel.sequence=true"],
}


def ours(o, name):
    """Tokens/s of a run of its own, without its first steps."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        config = runs.write(folder, "run", o.steps, o.microbatches, 1, "1f1b", tied=True)
        command = [options.engine, "run", config, "--quiet"]
        if name != ONE:
            command += ["--local-cluster", "2"]
        for set in ["pipeline.stages=1", "device.dtype=float32", "device.threads=2", *GRIDS[name]]:
            command += ["--set", set]
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
    p.add_argument("--grids", nargs="+", choices=list(GRIDS), default=list(GRIDS), help="default: all")
    p.add_argument("--modes", nargs="*", default=["eager", "compiled"], help="of PyTorch: eager, compiled (default: both)")
    o = parse(p)
    grids = [ONE, *(g for g in o.grids if g != ONE)]
    own, speeds = {g: [] for g in grids}, {m: [] for m in o.modes}
    with Sides() as sides:
        peers = [sides.add(m, python("peer_ddp.py", "--mode", m)) for m in o.modes]
        for peer in peers:
            peer.read()
            peer.ask(runs.SKIP)
        for _ in range(o.rounds):
            for g in grids:
                own[g].append(ours(o, g))
            for peer in peers:
                answer = peer.ask(o.steps)
                speeds[peer.name].append(1000 * answer["steps"] * runs.SEQUENCES * runs.CONTEXT / answer["ms"])
    head("two processes, a thread each", "tokens/s", "by one process with two threads", "by the same without overlap")
    for g in grids:
        off = f"{g}, no overlap"
        row(g, spread(own[g]), spread(ratios(own[g], own[ONE]), 3), spread(ratios(own[g], own[off]), 3) if off in own else "")
    if "data 2" in own and o.modes:
        print()
        head("DistributedDataParallel", "tokens/s", "Troupe, data 2, by it")
        for m in o.modes:
            row(m, spread(speeds[m]), spread(ratios(own["data 2"], speeds[m]), 3))


main()
