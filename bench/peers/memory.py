"""The memory of training: Troupe against PyTorch, each in a process of its own.

Prints a Markdown table: the most that a process held (VmHWM), less what it held
before the model was made; for PyTorch that is after its import.
"""

from side import Refused, Side, engine, head, parse, parser, python, row

STEPS = 3


def peak(name, command):
    """MiB at the peak of a few steps, and before them."""
    side = Side(name, command)
    side.read()
    for _ in range(STEPS):
        side.ask(1)
    end = side.close()[-1]
    return end["peak_bytes"] / 2**20, end["held_bytes"] / 2**20


def main():
    p = parser(__doc__, rounds=1)
    p.add_argument("--models", nargs="+", default=["gpt2-124m"])
    p.add_argument("--microbatches", type=int, nargs="+", default=[1, 2], help="Troupe's; PyTorch takes the sequences at once (default: 1 2)")
    p.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    p.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="config keys of Troupe, such as optimizer.state_dtype=int8")
    o = parse(p)
    sets = [word for key in o.set for word in ("--set", key)]
    by = [f"Troupe in {n} by it" for n in o.microbatches]
    head("model", "type", "threads", "side", "peak, MiB", "before, MiB", *by)
    for model in o.models:
        for dtype in o.dtypes:
            for threads in o.threads:
                common = ["--model", model, "--dtype", dtype, "--threads", threads]
                sides = {f"Troupe, microbatches: {n}": engine("step", *common, "--microbatches", n, *sets) for n in o.microbatches}
                for mode in "eager", "compiled":
                    sides[f"PyTorch {mode}"] = python("peer_step.py", *common, "--mode", mode)
                ours = []
                for name, command in sides.items():
                    try:
                        mib, before = peak(name, command)
                    except Refused as e:
                        row(model, dtype, threads, name, e, "", *[""] * len(by))
                        continue
                    if len(ours) < len(by):
                        ours.append(mib)
                    row(model, dtype, threads, name, f"{mib:,.0f}", f"{before:,.0f}", *[f"{m / mib:.2f}" for m in ours], *[""] * (len(by) - len(ours)))


main()
