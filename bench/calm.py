"""What replacing a lost rank costs a run while no worker fails.

Trains the same model on workers of this machine (--local-cluster), in pairs of turns: two stages with
cluster.shadow = "off" and "on", or, with --old, two stages with two replicas in another build of engine
and in this one. Prints a Markdown row: medians in ms a step over all steps with what a tenth is below and
above, the median of the ratios of the turns' medians with its 95 % interval, and the wait for shadows.

    python3 bench/calm.py
    python3 bench/calm.py --old OTHER/bin/engine
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import runs  # noqa: E402
from side import ENGINE, head, interval, row, spread  # noqa: E402


def turn(o, folder, name, program, keys):
    """The metrics of the steps of one run."""
    place = Path(folder) / name
    place.mkdir()
    config = runs.write(place, name, o.steps, o.sequences, 1, "1f1b", tied=False)
    words = [word for key in (f"batch.sequences={o.sequences}", "batch.microbatch=1", *keys) for word in ("--set", key)]
    subprocess.run([program, "run", config, "--local-cluster", str(4 if o.old else 2), "--quiet", *words], cwd=place, check=True,
                   stdout=subprocess.DEVNULL)
    lines = map(json.loads, next(place.rglob("metrics.jsonl")).read_text().splitlines())
    return [line for line in lines if "step_ms" in line][runs.SKIP:]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=ENGINE, help="the program to measure (default: %(default)s)")
    p.add_argument("--old", help="measure two replicas, beside this build")
    p.add_argument("--rounds", type=int, default=8, help="pairs of turns (default: %(default)s)")
    p.add_argument("--steps", type=int, default=8, help="of each turn (default: %(default)s)")
    p.add_argument("--sequences", type=int, default=32, help="of 256 tokens in a step (default: %(default)s)")
    o = p.parse_args()
    if o.old:
        sides = {"before": (o.old, ["parallel.data=2"]), "after": (o.engine, ["parallel.data=2"])}
    else:
        sides = {"before": (o.engine, ['cluster.shadow="off"']), "after": (o.engine, ['cluster.shadow="on"'])}
    steps, ratios = {name: [] for name in sides}, []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(o.rounds):
            median = {}
            for name in list(sides) if i % 2 == 0 else list(reversed(sides)):
                got = turn(o, folder, f"{name}{i}", *sides[name])
                steps[name] += got
                median[name] = statistics.median(line["step_ms"] for line in got)
            ratios.append(median["after"] / median["before"])
    head("ms a step, old" if o.old else "ms a step, off", "new" if o.old else "on", "ratio", "95 %", "shadow_ms")
    low, high = interval(ratios)
    row(*(spread([line["step_ms"] for line in steps[name]]) for name in sides), f"{statistics.median(ratios):.3f}", f"{low:.3f}–{high:.3f}",
        f"{statistics.median(line.get('shadow_ms', 0) for line in steps['after']):.1f}")


if __name__ == "__main__":
    main()
