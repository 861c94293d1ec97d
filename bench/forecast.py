"""A step over a network of a given rate, beside what `engine plan --cluster` predicts.

Two workers with a thread each and a coordinator, each in a network namespace of its own
(Linux, root, iproute2); tbf holds each to the rate. Without a delay they are on a bridge, with
one delay.py carries their packets. Every round asks for the forecast and then trains. Prints a
Markdown table: medians over the rounds, with what a tenth is below and above.

    sudo python3 bench/forecast.py
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path

from links import Cluster, limit, network

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import runs  # noqa: E402
from side import ENGINE, head, row, spread  # noqa: E402

CASES = {  # chunks on each stage, a schedule, and what else is set
    "1f1b": (1, "1f1b", []),
    "zb-v": (2, "zb-v", []),
    "data 2": (1, "1f1b", ["pipeline.stages=1", "parallel.data=2"]),
    "data 2, ZeRO-1": (1, "1f1b", ["pipeline.stages=1", "parallel.data=2", "parallel.zero=1"]),
    "context 2": (1, "1f1b", ["pipeline.stages=1", "parallel.context=2"]),
    "tensor 2": (1, "1f1b", ["pipeline.stages=1", "parallel.tensor=2"]),
    "tensor 2, sequence": (1, "1f1b", ["pipeline.stages=1", "parallel.tensor=2", "parallel.sequence=true"]),
}
NUMBERS = itertools.count(1)  # of runs


def measure(cluster, o, case, number):
    """Predicted and measured ms of a step, and what the network was found to be."""
    name = f"r{number}"
    chunks, schedule, more = CASES[case]
    config = runs.write(cluster.folder, name, o.steps, o.microbatches, chunks, schedule, tied=True)
    sets = [word for key in more for word in ("--set", key)]
    plan = json.loads(cluster.ask("plan", config, "--format", "json", "--seconds", o.seconds, *sets))
    cluster.ask("run", config, "--quiet", *sets)
    link = plan["links"][0]
    return plan["step_ms"], statistics.median(runs.step_ms(cluster.folder, name)), link["bytes_per_s"], link["latency_ms"]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--engine", default=ENGINE)
    p.add_argument("--mbit", type=int, nargs="+", default=[1000, 100], help="rates, Mbit/s (default: 1000 100)")
    p.add_argument("--delay-ms", type=float, nargs="+", default=[0], help="from one host to another, one way (default: 0)")
    p.add_argument("--congestion", default="reno", help="TCP's congestion control (default: %(default)s)")
    p.add_argument("--cases", nargs="+", choices=list(CASES), default=["1f1b", "zb-v"], help="schedules of two stages, and grids (default: 1f1b zb-v)")
    p.add_argument("--microbatches", type=int, default=8)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=6, help="of each round (default: %(default)s)")
    p.add_argument("--seconds", type=float, default=1, help="of measuring what layers take, for each forecast (default: 1)")
    o = p.parse_args()
    head("rate, Mbit/s", "delay, ms", "the link as measured", "case", "predicted, ms a step", "measured", "measured / predicted")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for delay_ms in o.delay_ms:
            with network(delay_ms, o.congestion) as names:
                for mbit in o.mbit:
                    limit(names, mbit, delay_ms)
                    table(names, folder, o, mbit, delay_ms)


def table(names, folder, o, mbit, delay_ms):
    """The rows of a network."""
    cluster = Cluster(names, folder, o.engine)
    try:
        for case in o.cases:
            rounds = [measure(cluster, o, case, next(NUMBERS)) for _ in range(o.rounds)]
            predicted, measured, rates, latencies = zip(*rounds)
            row(mbit, f"{delay_ms:g}", f"{8e-6 * statistics.median(rates):,.0f} Mbit/s, {statistics.median(latencies):.2f} ms", case,
                spread(predicted, 1), spread(measured, 1), spread([m / p for p, m, *_ in rounds], 3))
    finally:
        cluster.close()


main()
