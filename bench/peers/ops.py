"""A model's operations one by one: Troupe against PyTorch's kernels.

Prints a Markdown table: the medians of each side in milliseconds, Troupe's speed by
PyTorch's, and each side's rate by what bounds it: that of a large copy where memory does,
that of a large product where arithmetic does, both PyTorch's.
"""

import json
import pathlib
import statistics
import subprocess
import sys

from side import Refused, head, options, parse, parser, python, row

# Operations by Troupe's names, and by PyTorch's where one of its kernels does several.
TOGETHER = {f"{norm}, backward": [f"{norm}, gradient", f"{norm}, weight gradient"] for norm in ("LayerNorm", "RMSNorm")}


def run(name, command, limit):
    """Run a side to its end and return its answers by operation."""
    try:
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, timeout=limit)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Refused(f"{name}: {e}") from e
    if done.returncode:
        raise Refused(f"{name}: exit status {done.returncode}")
    return {r["op"]: r for r in map(json.loads, done.stdout.splitlines())}


def measure(o, model, dtype, threads):
    """What each side answers, round by round: (Troupe's, PyTorch's)."""
    common = ["--model", model, "--dtype", dtype, "--device", o.device, "--seconds", o.seconds]
    if o.sequences:
        common += ["--sequences", o.sequences]
    ours = [options.engine, "bench", "ops", "--json", *common]
    if o.device == "cpu":
        ours += ["--threads", threads]
    if o.context:
        ours += ["--set", f"model.context={o.context}"]
    theirs = python("peer_ops.py", *common, "--threads", threads, *(["--context", o.context] if o.context else []))
    answers = [], []
    for _ in range(o.rounds):
        answers[0].append(run("Troupe", ours, o.limit))
        answers[1].append(run("PyTorch", theirs, o.limit))
    return answers


def median(answers, names):
    """The time of some operations together: the median over the rounds, in ms."""
    return statistics.median(sum(a[n]["ms"]["median"] for n in names) for a in answers)


def compare(ours, theirs):
    """The rows: what both sides have."""
    first, peer = ours[0], theirs[0]
    bounds = {  # what a side does in a millisecond at most
        "bytes": peer["copy of memory"]["bytes"] / median(theirs, ["copy of memory"]),
        "flops": peer["large product"]["flops"] / median(theirs, ["large product"]),
    }
    for name, their in peer.items():
        names = TOGETHER.get(name, [name])
        if not all(n in first for n in names):
            continue
        ms, their_ms = median(ours, names), median(theirs, [name])
        bound = "flops" if "flops" in first[names[0]] else "bytes"
        amount = sum(first[n][bound] for n in names)
        types = [first[names[0]]["dtype"], their["dtype"]]
        yield {
            "op": name, "kernels": first[names[0]].get("kernels"), "by": first[names[0]].get("by"), "size": first[names[0]]["size"], "types": types, "ms": ms, "peer_ms": their_ms, "ratio": their_ms / ms,
            "bound": bound, "of_bound": amount / ms / bounds[bound], "peer_of_bound": amount / their_ms / bounds[bound],
        }
    yield {"op": "bounds", "gb_per_s": bounds["bytes"] / 1e6, "gflops": bounds["flops"] / 1e6}


def main():
    p = parser(__doc__, rounds=1)
    p.add_argument("--models", nargs="+", default=["gpt2-124m"])
    p.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], help="of products and attention (default: both)")
    p.add_argument("--seconds", type=float, default=0.2, help="for each operation (default: %(default)s)")
    p.add_argument("--sequences", type=int, help="in a step (default: the model's)")
    p.add_argument("--context", type=int, help="positions of a sequence (default: the model's)")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="that both sides compute on (default: %(default)s)")
    p.add_argument("--limit", type=float, default=600, help="seconds that a side may take (default: %(default)s)")
    p.add_argument("--json", type=pathlib.Path, help="file to write the rows to as well, an object a line")
    o = parse(p)
    threads_of = o.threads if o.device == "cpu" else [1]
    rows, failed = [], False
    head("model", "operation", "size", "type", "threads", "Troupe, ms", "PyTorch, ms", "Troupe by PyTorch", "bound", "Troupe of it", "PyTorch of it")
    for model in o.models:
        for dtype in o.dtypes:
            for threads in threads_of:
                try:
                    compared = list(compare(*measure(o, model, dtype, threads)))
                except Refused as e:
                    row(model, e, "", dtype, threads)
                    failed = True
                    continue
                for r in compared[:-1]:
                    types = " and ".join(dict.fromkeys(r["types"]))
                    row(model, r["op"], r["size"], types, threads, f"{r['ms']:.4g}", f"{r['peer_ms']:.4g}", f"{r['ratio']:.2f}",
                        {"flops": "product", "bytes": "copy"}[r["bound"]], f"{100 * r['of_bound']:.0f} %", f"{100 * r['peer_of_bound']:.0f} %")
                last = compared[-1]
                row(model, "large copy and product", "", dtype, threads, "", "", "", f"{last['gb_per_s']:,.0f} GB/s, {last['gflops']:,.0f} GFLOP/s", "", "")
                rows += [{"model": model, "dtype": dtype, "threads": threads, **r} for r in compared]
    if o.json:
        o.json.write_text("".join(json.dumps(r) + "\n" for r in rows))
    sys.exit(failed)


main()
