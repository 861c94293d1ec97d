"""Whole training steps: Troupe against PyTorch, eager and compiled.

Prints a Markdown table: medians over the rounds in tokens/s, with what a tenth of
the rounds is below and above, and Troupe's speed by that of the faster of the
others, round by round.
"""

import json
import math
import pathlib
import statistics

from side import Refused, Sides, engine, head, parse, parser, python, ratios, row, spread

WARM_UP_STEPS = 2  # the first compiles, allocates and touches memory


def start(sides, o, name, command):
    """Start a side and wait until it goes evenly; returns it with the steps of a turn."""
    side = sides.add(name, command)
    ready = side.read()
    for _ in range(WARM_UP_STEPS):
        took = side.ask(1)["ms"]
    return side, ready, max(1, math.ceil(1000 * o.seconds / took))


def turns(o, started, what):
    """The tokens/s of each side, by name, in turns."""
    kinds = {(ready["parameters"], ready["tokens_per_step"]) for _, ready, _ in started}
    if len(kinds) > 1:
        raise SystemExit(f"{what}: the sides differ in (parameters, tokens in a step): {kinds}")
    speeds = {}
    for _ in range(o.rounds):
        for side, ready, n in started:
            answer = side.ask(n)
            speeds.setdefault(side.name, []).append(1000 * answer["steps"] * ready["tokens_per_step"] / answer["ms"])
    return speeds


def measure(o, model, dtype, threads):
    """What is told of the work, with each side's tokens/s and the bytes that it has taken, by name."""
    common = ["--model", model, "--dtype", dtype]
    if o.sequences:
        common += ["--sequences", o.sequences]
    sets = [f"device.kind={o.device}"] + ([f"model.context={o.context}"] if o.context else [])
    ours = engine("step", *common, *(["--microbatches", o.microbatches] if o.microbatches else []), *(a for s in sets for a in ("--set", s)))
    if o.device == "cpu":
        ours += ["--threads", threads]
    common += ["--threads", threads, "--device", o.device] + (["--context", o.context] if o.context else [])
    memory, gpus = {}, []
    with Sides() as sides:
        started = [start(sides, o, "Troupe", ours)]
        for mode in o.peers:
            started.append(start(sides, o, mode, python("peer_step.py", *common, "--mode", mode)))
        speeds = turns(o, started, model)
        for side, _, _ in started:
            end = side.close()[-1]
            memory[side.name] = end.get("device_taken_bytes") or end["peak_bytes"]
            gpus = gpus or end.get("gpus", [])  # Troupe alone tells of them
        ready = started[0][1]
    return {"kernels": ready["kernels"], "gpus": gpus, "gflop_per_token": ready["gflop_per_step"] / ready["tokens_per_step"], "tokens_per_s": speeds, "bytes": memory}


def main():
    p = parser(__doc__, rounds=7)
    p.add_argument("--models", nargs="+", default=["gpt", "gpt2-124m", "llama", "qwen3"])
    p.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    p.add_argument("--peers", nargs="+", choices=["eager", "compiled"], default=["eager", "compiled"])
    p.add_argument("--seconds", type=float, default=2, help="of each turn, about (default: %(default)s)")
    p.add_argument("--sequences", type=int, help="in a step (default: the model's)")
    p.add_argument("--microbatches", type=int, help="Troupe's; PyTorch takes the sequences at once (default: the engine's)")
    p.add_argument("--context", type=int, help="positions of a sequence (default: the model's)")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="that all sides compute on (default: %(default)s)")
    p.add_argument("--json", type=pathlib.Path, help="file to write what was measured to as well, an object a line")
    o = parse(p)
    measured = []
    head("model", "type", "threads", "Troupe, tokens/s", *[f"PyTorch {m}, tokens/s" for m in o.peers], "Troupe by the faster")
    for model in o.models:
        for dtype in o.dtypes:
            for threads in o.threads:
                try:
                    measured.append({"model": model, "dtype": dtype, "threads": threads, **measure(o, model, dtype, threads)})
                except Refused as e:
                    row(model, dtype, threads, e)
                    continue
                speeds = measured[-1]["tokens_per_s"]
                faster = max(o.peers, key=lambda m: statistics.median(speeds[m]))
                row(model, dtype, threads, *[spread(s) for s in speeds.values()], spread(ratios(speeds["Troupe"], speeds[faster]), 2))
    if o.json:
        o.json.write_text("".join(json.dumps(m) + "\n" for m in measured))


if __name__ == "__main__":
    main()
