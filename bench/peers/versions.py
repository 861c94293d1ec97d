"""Two builds of Troupe, or two settings of one: whole training steps, in pairs of turns.

Prints a Markdown table: medians in ms a step with what a tenth of the turns is below and
above, and the median of the ratios pair by pair, with its 95 % interval (by order
statistics, which assumes nothing of how times are distributed). Muon beside AdamW:
--new-set optimizer.name=muon.
"""

import math
import statistics

from side import ENGINE, Sides, head, interval, parse, parser, row, spread


def measure(o, model, dtype, threads):
    """ms a step of each build, turn by turn."""
    ms = {"old": [], "new": []}
    with Sides() as sides:
        turns = []
        for name, program, keys in (("old", o.old, o.old_set), ("new", o.engine, o.new_set)):
            command = [program, "bench", "step", "--model", model, "--threads", threads, "--dtype", dtype, "--on-request"]
            command += [word for key in keys for word in ("--set", key)]
            side = sides.add(name, command)
            side.read()
            side.ask(1)  # allocates and touches memory
            turns.append((side, max(1, math.ceil(1000 * o.seconds / side.ask(1)["ms"]))))
        n = max(steps for _, steps in turns)
        for i in range(o.rounds):
            for side, _ in turns if i % 2 == 0 else reversed(turns):
                answer = side.ask(n)
                ms[side.name].append(answer["ms"] / answer["steps"])
    return ms


def main():
    p = parser(__doc__, rounds=20)
    p.add_argument("--old", default=ENGINE, help="the other build of engine (default: %(default)s)")
    p.add_argument("--old-set", nargs="*", default=[], metavar="KEY=VALUE", help="config keys of the old side")
    p.add_argument("--new-set", nargs="*", default=[], metavar="KEY=VALUE", help="config keys of the new side")
    p.add_argument("--models", nargs="+", default=["gpt", "gpt2-124m", "llama"])
    p.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    p.add_argument("--seconds", type=float, default=1, help="of each turn, about (default: %(default)s)")
    o = parse(p)
    head("model", "type", "threads", "old, ms", "new, ms", "new / old", "95 %")
    for model in o.models:
        for dtype in o.dtypes:
            for threads in o.threads:
                ms = measure(o, model, dtype, threads)
                ratio = [a / b for a, b in zip(ms["new"], ms["old"])]
                low, high = interval(ratio)
                row(model, dtype, threads, spread(ms["old"], 1), spread(ms["new"], 1), f"{statistics.median(ratio):.3f}", f"{low:.3f}–{high:.3f}")


if __name__ == "__main__":
    main()
