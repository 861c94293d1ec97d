"""How much of the exchange of tokens between experts is hidden behind computing, over a network of a given rate.

Two workers with a thread each share the experts of a small model, each in a network namespace of
its own; tbf holds each to the rate (Linux, root, iproute2). Every round trains four times: with
parallel.expert_overlap and without, at the rate and without a limit, and asks for the forecast at
the rate. Hidden is 1 - (with - with, no limit) / the time that the link needs for the tokens of a
step. The difference includes the sums of the replicas' other gradients, so it is a lower bound.
Prints a Markdown table: medians over the rounds, with what a tenth is below and above.

    sudo python3 bench/experts.py
"""

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path

from links import Cluster, limit, network, unlimited

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))
import runs  # noqa: E402
from side import ENGINE, head, row, spread  # noqa: E402

CASES = {  # chunks on each rank, a schedule
    "dualpipev": (2, "dualpipev"),
    "none": (1, "none"),
}
NUMBERS = itertools.count(1)  # of runs


def sets(o, overlap):
    """What a run sets besides the configuration of runs.py."""
    keys = ["model.family=qwen3_moe", f"model.hidden={o.hidden}", f"model.layers={o.layers}", f"model.experts={o.experts}",
            f"model.experts_per_token={o.chosen}", f"model.expert_ffn={o.width}", "model.kv_heads=6", "model.tie_embeddings=false",
            "pipeline.stages=1", "parallel.data=2", "parallel.expert=2", f"batch.sequences={2 * o.microbatches}", "batch.microbatch=1",
            f"device.dtype={o.dtype}"]
    if overlap:
        keys.append("parallel.expert_overlap=true")
    return [word for key in keys for word in ("--set", key)]


def train(cluster, o, case, overlap):
    """The median ms of a run's steps."""
    name, (chunks, schedule) = f"r{next(NUMBERS)}", CASES[case]
    config = runs.write(cluster.folder, name, o.steps, runs.SEQUENCES, chunks, schedule, tied=False)
    cluster.ask("run", config, "--quiet", *sets(o, overlap))
    return statistics.median(runs.step_ms(cluster.folder, name))


def forecast(cluster, o, case, overlap):
    """The predicted ms of a step."""
    name, (chunks, schedule) = f"r{next(NUMBERS)}", CASES[case]
    config = runs.write(cluster.folder, name, o.steps, runs.SEQUENCES, chunks, schedule, tied=False)
    return json.loads(cluster.ask("plan", config, "--format", "json", "--seconds", o.seconds, *sets(o, overlap)))["step_ms"]


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--engine", default=ENGINE)
    p.add_argument("--mbit", type=int, nargs="+", default=[1000], help="rates, Mbit/s (default: 1000)")
    p.add_argument("--congestion", default="reno", help="TCP's congestion control (default: %(default)s)")
    p.add_argument("--cases", nargs="+", choices=list(CASES), default=["dualpipev"], help="schedules of one stage (default: dualpipev)")
    p.add_argument("--microbatches", type=int, default=16, help="of each of the two replicas, of 256 tokens (default: %(default)s)")
    p.add_argument("--hidden", type=int, default=384, help="default: %(default)s")
    p.add_argument("--layers", type=int, default=2, help="default: %(default)s")
    p.add_argument("--experts", type=int, default=8, help="of a layer (default: %(default)s)")
    p.add_argument("--chosen", type=int, default=2, help="experts of a token (default: %(default)s)")
    p.add_argument("--width", type=int, default=1024, help="inner width of an expert (default: %(default)s)")
    p.add_argument("--dtype", default="float32", help="default: %(default)s")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=4, help="of each run (default: %(default)s)")
    p.add_argument("--seconds", type=float, default=1, help="of measuring what layers take, for each forecast (default: 1)")
    p.add_argument("--no-forecast", action="store_true", help="do not ask for forecasts")
    o = p.parse_args()
    head("rate, Mbit/s", "case", "tokens on the link, ms a step", "overlapped, ms a step", "one after the other", "overlapped, no limit", "one after the other, no limit", "hidden, %",
         "overlapped, measured / predicted", "one after the other, measured / predicted")
    with tempfile.TemporaryDirectory() as folder, network(0, o.congestion) as names:
        cluster = Cluster(names, Path(folder), o.engine)
        try:
            for mbit, case in itertools.product(o.mbit, o.cases):
                compare(cluster, names, o, mbit, case)
        finally:
            cluster.close()


def link_ms(o, mbit):
    """The ms that the link needs for the tokens that a rank sends in a step: half of its own, five times in each layer.

    Two times forward, and three times backward, of which what comes back is float32.
    """
    inner = 2 if o.dtype == "bfloat16" else 4
    rows = o.chosen * runs.CONTEXT / 2 * o.layers * o.microbatches
    return rows * o.hidden * (4 * inner + 4) / (mbit * 125)


def compare(cluster, names, o, mbit, case):
    """A row of the table."""
    took, predicted = {}, {True: [], False: []}
    for _ in range(o.rounds):
        for limited in (True, False):
            limit(names, mbit, 0) if limited else unlimited(names)
            for overlap in (True, False):
                if limited and not o.no_forecast:
                    predicted[overlap].append(forecast(cluster, o, case, overlap))
                took.setdefault((limited, overlap), []).append(train(cluster, o, case, overlap))
    link = link_ms(o, mbit)
    hidden = [100 * (1 - (a - b) / link) for a, b in zip(took[True, True], took[False, True])]
    by = [spread([m / p for m, p in zip(took[True, overlap], predicted[overlap])], 3) if predicted[overlap] else "" for overlap in (True, False)]
    row(mbit, case, f"{link:,.0f}", *(spread(took[key], 1) for key in [(True, True), (True, False), (False, True), (False, False)]), spread(hidden, 1), *by)


main()
