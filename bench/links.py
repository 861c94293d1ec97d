"""Namespaces of a network of a given rate, and a coordinator with two workers in them (Linux, root, iproute2).

forecast.py and experts.py measure in them.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HOSTS = ["boss", "w0", "w1"]
PORT = "10.77.0.1:7070"


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


def unlimited(names):
    """Let every host send as fast as the machine carries it."""
    for n in names[:-1]:
        subprocess.run(["tc", "-n", n, "qdisc", "delete", "dev", "eth0", "root"], capture_output=True)
