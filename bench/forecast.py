"""A step over a network of a given rate, beside what `engine plan --cluster` predicts.

Two workers with a thread each and a coordinator, each in a network namespace of its own
(Linux, root, iproute2); tbf holds each to the rate. Without a delay they are on a bridge, with
one delay.py carries their packets. Every round asks for the forecast and then trains. Prints a
Markdown table: medians over the rounds, with what a tenth is below and above.

    sudo python3 bench/forecast.py
"""

import argparse
import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
HOSTS = ["boss", "w0", "w1"]
PORT = "10.77.0.1:7070"
NUMBERS = itertools.count(1)  # of runs


def sh(*command, **options):
    """Run a command that must succeed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


@contextlib.contextmanager
def network(delay_ms, congestion):
    """Namespaces on a bridge that is in one of its own, or, if there is a delay, on what makes it."""
    names = ["troupe-" + h for h in [*HOSTS, "bridge"]]
    carrier = None
    try:
        for n in names:
            sh("ip", "netns", "add", n)
            sh("ip", "netns", "exec", n, "sysctl", "-q", "-w", f"net.ipv4.tcp_congestion_control={congestion}")
        if delay_ms:
            hosts = [f"{n}=10.77.0.{i + 1}" for i, n in enumerate(names[:-1])]
            carrier = subprocess.Popen([sys.executable, Path(__file__).with_name("delay.py"), str(delay_ms), *hosts], stdout=subprocess.PIPE)
            if carrier.stdout.readline() != b"ready\n":
                raise SystemExit("delay.py does not start")
            yield names
            return
        bridge = ["ip", "-n", names[-1]]
        sh(*bridge, "link", "add", "name", "br0", "type", "bridge")
        sh(*bridge, "link", "set", "br0", "up")
        for i, n in enumerate(names[:-1]):
            sh("ip", "-n", n, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", names[-1])
            sh("ip", "-n", n, "address", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            sh("ip", "-n", n, "link", "set", "eth0", "up")
            sh("ip", "-n", n, "link", "set", "lo", "up")
            sh(*bridge, "link", "set", f"port{i}", "master", "br0", "up")
        yield names
    finally:
        if carrier:
            carrier.kill()
            carrier.wait()
        for n in names:
            subprocess.run(["ip", "netns", "delete", n], capture_output=True)


def limit(names, mbit, delay_ms):
    """Hold what every host sends to a rate."""
    burst = max(130_000 if delay_ms else 16_000, mbit * 125)  # bytes: 1 ms of the rate, and no less than what is sent at once
    for n in names[:-1]:
        sh("tc", "-n", n, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit", "burst", burst, "latency", "200ms")


class Cluster:
    """A coordinator and two workers."""

    def __init__(self, names, folder, engine):
        self.folder, self.engine, self.boss = folder, engine, names[0]
        self.state = Path(tempfile.mkdtemp(dir=folder))
        self.processes = [self.spawn(names[0], "cluster", "start", "--listen", PORT, "--dir", self.state)]
        token = self.state / "worker.token"
        deadline = time.monotonic() + 20
        while not token.exists():
            if time.monotonic() > deadline:
                raise SystemExit("the coordinator does not start")
            time.sleep(0.1)
        for core, n in enumerate(names[1:3]):
            self.processes.append(self.spawn(n, "worker", "--join", PORT, "--token-file", token, "--name", n, "--threads", 1, core=core))
        while len(json.loads(self.ask("status", "--json")).get("workers") or []) < 2:
            if time.monotonic() > deadline:
                raise SystemExit("the workers do not join")
            time.sleep(0.1)

    def spawn(self, namespace, *arguments, core=None):
        log = open(self.folder / f"{namespace}.log", "wb")
        pinned = [] if core is None else ["taskset", "--cpu-list", str(core)]
        return subprocess.Popen(["ip", "netns", "exec", namespace, *pinned, self.engine, *map(str, arguments)], stdout=log, stderr=log, cwd=self.folder)

    def ask(self, *arguments):
        return sh("ip", "netns", "exec", self.boss, self.engine, *arguments, "--cluster", PORT, "--dir", self.state, cwd=self.folder)

    def close(self):
        for p in reversed(self.processes):
            p.terminate()
        for p in self.processes:
            p.wait()


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
