"""What the failures of workers cost a run of about 100 million parameters, on one machine (Linux).

Starts a coordinator and workers of bin/engine (make build), trains, and kills (-9) or drains workers. It prints for each failure
when it was noticed, when that step had ended, and when the run was as far in it as at the failure (back: the rest of a step earlier).
At the end it prints medians and worst cases, the throughput beside that of the same run without failures, and how many losses and
norms differ from it.

    python3 bench/faults.py kills --layout shadows --faults 40      # random moments; 40 kills take about 10 minutes
    python3 bench/faults.py kills --layout replicas --faults 40
    python3 bench/faults.py every --layout shadows --minutes 10     # a kill every 30 s
    python3 bench/faults.py every --layout replicas --minutes 10
    python3 bench/faults.py drains --layout shadows --minutes 10    # engine drain of one worker after the other, every 30 s
    python3 bench/faults.py drains --layout replicas --minutes 10

shadows is a pipeline of 4 stages, replicas has 2 stages and 2 replicas. --sequences (8, of 64 tokens) sets how long a step takes,
--width, --layers and --steps make a small trial. Leave the machine alone meanwhile. Exit status 1: losses or norms differ.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINE = ROOT / "bin" / "engine"
LAYOUTS = {
    "shadows": ("stages = 4", "[cluster]\nshadow = \"on\"\nrebalance = false\nmax_restarts = 20"),
    "replicas": ("stages = 2\n\n[parallel]\ndata = 2", "[cluster]\nrebalance = false\nmax_restarts = 20"),
}
RANKS = 4
SPARES = 2
LIMIT_S = 120  # for anything that must happen


def config(o, out):
    pipeline, cluster = LAYOUTS[o.layout]
    return f"""
[run]
name = "faults"
out = "{out}"
seed = 7
steps = 1000000
eval_every = 0
checkpoint_every = 0
keep = 1
log_every = 1

[model]
layers = {o.layers}
hidden = {o.width}
heads = {max(1, o.width // 64)}
context = 64

[data]
train = ["{ROOT}/actors/*.go", "{ROOT}/stages/*.go"]

[batch]
sequences = {o.sequences}
microbatch = 1

[pipeline]
{pipeline}

{cluster}
"""


class Cluster:
    """A coordinator, and workers that are started again when they end."""

    def __init__(self, place, workers=RANKS + SPARES):
        self.place, self.stopped, self.lock = place, False, threading.Lock()
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{s.getsockname()[1]}"
        self.log = open(place / "coordinator.log", "wb")
        self.lead = subprocess.Popen(
            [ENGINE, "cluster", "start", "--listen", self.address, "--dir", place / "cluster", "--root", place, "--root", ROOT],
            stdout=self.log, stderr=self.log, cwd=place)
        token = place / "cluster" / "worker.token"
        wait(lambda: token.exists() and (place / "cluster" / "operator.token").exists(), "the coordinator's tokens")
        self.workers = {}
        for i in range(workers):
            self.start(f"w{i}")
            threading.Thread(target=self.keep, args=(f"w{i}",), daemon=True).start()

    def environment(self):
        return {**os.environ, "ENGINE_TOKEN_FILE": str(self.place / "cluster" / "operator.token"), "ENGINE_CLUSTER": self.address}

    def start(self, name):
        with open(self.place / f"{name}.log", "ab") as log:
            self.workers[name] = subprocess.Popen(
                [ENGINE, "worker", "--join", self.address, "--token-file", self.place / "cluster" / "worker.token", "--name", name,
                 "--cert-file", self.place / f"{name}.pem", "--threads", "1"], stdout=log, stderr=log, cwd=self.place)

    def keep(self, name):
        while True:
            self.workers[name].wait()
            with self.lock:
                if self.stopped:
                    return
                self.start(name)

    def hosts(self):
        """The name of each rank's worker."""
        text = subprocess.run([ENGINE, "status", "--json"], env=self.environment(), capture_output=True, text=True, timeout=LIMIT_S,
                              check=True).stdout
        return {a["rank"]: a["host"] for a in actors_of(json.loads(text)) if a.get("host") and a.get("rank", -1) >= 0}

    def end(self):
        with self.lock:
            self.stopped = True
        for p in [*self.workers.values(), self.lead]:
            p.kill()
            p.wait()


def actors_of(status):
    """The actors in what engine status prints, wherever they are in it."""
    if isinstance(status, dict):
        return status["actors"] if "actors" in status else [a for v in status.values() for a in actors_of(v)]
    return [a for v in status for a in actors_of(v)] if isinstance(status, list) else []


class Run:
    """A run with the events that it prints, each with the time at which it came."""

    def __init__(self, cluster, text, workers=RANKS + SPARES):
        path = cluster.place / "run.toml"
        path.write_text(text)
        self.events, self.changed = [], threading.Condition()
        self.process = subprocess.Popen([ENGINE, "run", path, "--json", "--cluster", cluster.address, "--workers", str(workers)],
                                        env=cluster.environment(), stdout=subprocess.PIPE, stderr=open(cluster.place / "run.log", "ab"),
                                        text=True, cwd=cluster.place)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.events.append((time.monotonic(), json.loads(line)))
                self.changed.notify_all()
        with self.changed:
            self.events.append((time.monotonic(), {"event": "closed"}))
            self.changed.notify_all()

    def step(self):
        """The last step, and when it ended."""
        with self.changed:
            return next((e["step"], t) for t, e in reversed(self.events) if e["event"] == "step")

    def await_event(self, what, want, first=0, limit=LIMIT_S):
        until = time.monotonic() + limit
        with self.changed:
            while True:
                for at, e in self.events[first:]:
                    if want(e):
                        return at, e
                    if e["event"] == "closed":
                        sys.exit(f"the run has ended before {what}: {self.events[-3:]}")
                if time.monotonic() > until:
                    sys.exit(f"{what} has not come in {limit} s: {self.events[-3:]}")
                self.changed.wait(1)

    def figures(self):
        return {e["step"]: (e.get("loss"), e.get("grad_norm")) for _, e in self.events if e["event"] == "step" and e["step"] > 0}

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()


def wait(holds, what):
    until = time.monotonic() + LIMIT_S
    while not holds():
        if time.monotonic() > until:
            sys.exit(f"{what}: not there after {LIMIT_S} s")
        time.sleep(0.02)


def strike(o, cluster, run, moment, number, step_s):
    """Makes one failure and returns when it was noticed, when the run was where it had been, and when its step ended, in seconds after it."""
    names = sorted(set(cluster.hosts().values()))
    name = moment.choice(names) if o.mode != "drains" else names[number % len(names)]
    with run.changed:
        first = len(run.events)
    (step, began), at = run.step(), time.monotonic()
    if o.mode == "drains":
        subprocess.run([ENGINE, "drain", name, "--no-wait"], env=cluster.environment(), check=True, timeout=LIMIT_S, capture_output=True)
    else:
        cluster.workers[name].kill()
    came, e = run.await_event("a replacement", lambda e: e["event"] in ("replace", "restart", "regroup"), first)
    ended, _ = run.await_event("the step in progress", lambda e: e["event"] == "step" and e["step"] > step, first)
    back = ended - max(0, step_s - (at - began))
    if e["event"] != "replace":
        print(f"{number:3}  {name}: {e['event']}: {e.get('why') or e.get('text')}", flush=True)
        return None
    noticed = came - at - e["loaded_s"]
    print(f"{number:3}  {name} in step {step + 1}: noticed {noticed:.3f} s, halted {e['halted_s']:.3f}, found {e['found_s']:.3f}, loaded "
          f"{e['loaded_s']:.3f}, {e['bytes'] / 1e6:.0f} MB; kept ones read {e['kept_bytes']}; back {back - at:.2f} s, "
          f"the step's end {ended - at:.2f}", flush=True)
    if o.mode == "drains":  # so that it can have ranks again
        cluster.workers[name].terminate()
    return noticed, back - at, ended - at


def ends(run, begin, end):
    """When steps ended, between two times."""
    return [t for t, e in run.events if e["event"] == "step" and begin <= t <= end]


def rate(run, begin, end):
    """Steps a second between two times."""
    return len(ends(run, begin, end)) / (end - begin)


def share_of_median(run, begin, end):
    """Which share of the time steps would have taken if each had taken the median time of a step. Most steps meet no failure, so
    a machine whose speed changes during the run changes this less than the rate beside that of another time."""
    at = ends(run, begin, end)
    return len(at) * statistics.median(b - a for a, b in zip(at, at[1:])) / (end - begin)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("mode", choices=("kills", "every", "drains"))
    p.add_argument("--layout", choices=LAYOUTS, default="shadows")
    p.add_argument("--faults", type=int, default=40, help="of kills")
    p.add_argument("--minutes", type=float, default=10, help="of every and drains")
    p.add_argument("--seconds", type=float, default=30, help="between two failures of every and drains")
    p.add_argument("--calm", type=float, default=60, help="seconds without failures, to compare with")
    p.add_argument("--width", type=int, default=832)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--sequences", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-bits", action="store_true", help="do not repeat the run without failures")
    o = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the workers end too
    moment, differ = random.Random(o.seed), 0
    place = pathlib.Path(tempfile.mkdtemp(prefix="troupe-faults-"))
    cluster = Cluster(place)
    try:
        run = Run(cluster, config(o, place / "out"))
        run.await_event("step 3", lambda e: e["event"] == "step" and e["step"] >= 3)
        begin = time.monotonic()
        time.sleep(o.calm)
        calm, begin = rate(run, begin, time.monotonic()), time.monotonic()
        print(f"{o.layout}, {12 * o.layers * o.width ** 2 / 1e6:.0f} M parameters in blocks, {o.sequences * 64} tokens a step: "
              f"{1 / calm:.2f} s a step without failures", flush=True)
        figures, number = [], 0
        while number < o.faults if o.mode == "kills" else time.monotonic() - begin < 60 * o.minutes:
            if o.mode == "kills":
                time.sleep(moment.uniform(1, 3) / calm)
            else:
                time.sleep(max(0, begin + o.seconds * (number + 0.5) - time.monotonic()))
            figures.append(strike(o, cluster, run, moment, number, 1 / calm))
            number += 1
        if o.mode != "kills":
            time.sleep(max(0, begin + o.seconds * number - time.monotonic()))
        now = time.monotonic()
        share, between = rate(run, begin, now) / calm, share_of_median(run, begin, now)
        run.stop()
        good = [f for f in figures if f]
        print(f"{len(figures)} failures, {len(figures) - len(good)} of them without a replacement")
        for i, what in enumerate(("noticed", "back", "the step's end")):
            if good:
                print(f"{what}: median {statistics.median(f[i] for f in good):.3f} s, worst {max(f[i] for f in good):.3f} s")
        print(f"throughput: {100 * share:.1f} % of that without failures; {100 * between:.1f} % if each step took as long as the median one")
        if not o.no_bits:
            got = run.figures()
            again = Run(cluster, config(o, place / "again"))
            again.await_event("the last step", lambda e: e["event"] == "step" and e["step"] >= max(got), limit=LIMIT_S + 2 * max(got) / calm)
            want = again.figures()
            again.stop()
            differ = sum(want.get(step) != one for step, one in got.items())
            print(f"{differ} of {len(got)} steps differ in loss or norm from the same run without failures")
    finally:
        cluster.end()
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(1 if differ else 0)


if __name__ == "__main__":
    main()
