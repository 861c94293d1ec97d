"""Pipelines on one machine: several stages against one, with the same threads and
microbatches.

Prints a Markdown table: medians over the rounds in tokens/s, with what a tenth of
the rounds is below and above, and the layout's speed by that of one stage, round
by round. It needs no peer.
"""

import math

from side import Sides, engine, head, parse, parser, ratios, row, spread

LAYOUTS = {"1 stage": (1, 1), "2 stages × 2 chunks": (2, 2), "4 stages": (4, 1)}


def measure(o, model, threads):
    """Tokens/s by layout."""
    speeds = {name: [] for name in LAYOUTS}
    with Sides() as sides:
        turns = []
        for name, (stages, chunks) in LAYOUTS.items():
            side = sides.add(name, engine("step", "--model", model, "--threads", threads, "--dtype", o.dtype, "--microbatches", o.microbatches,
                                          "--stages", stages, "--chunks", chunks))
            tokens = side.read()["tokens_per_step"]
            side.ask(1)  # allocates and touches memory
            turns.append((side, tokens, max(1, math.ceil(1000 * o.seconds / side.ask(1)["ms"]))))
        for _ in range(o.rounds):
            for side, tokens, n in turns:
                answer = side.ask(n)
                speeds[side.name].append(1000 * answer["steps"] * tokens / answer["ms"])
    return speeds


def main():
    p = parser(__doc__, rounds=9)
    p.add_argument("--models", nargs="+", default=["gpt"])
    p.add_argument("--dtype", default="float32")
    p.add_argument("--microbatches", type=int, default=8, help="default: %(default)s")
    p.add_argument("--seconds", type=float, default=3, help="of each turn, about (default: %(default)s)")
    o = parse(p)
    head("model", "threads", "layout", "tokens/s", "by one stage")
    for model in o.models:
        for threads in o.threads:
            speeds = measure(o, model, threads)
            for name, s in speeds.items():
                row(model, threads, name, spread(s), spread(ratios(s, speeds["1 stage"]), 3))


main()
