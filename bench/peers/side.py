"""What the comparisons share: programs that take turns, and tables of the outcome.

A side is a process that does a piece of work for each line that it is sent, and
answers with a line of JSON. All sides live at the same time and only one works at
a time, so that what else the machine does falls on all of them alike.
"""

import argparse
import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENGINE = HERE.parent.parent / "bin" / "engine"

# After their work the threads of OpenBLAS and OpenMP wait busily for a moment, in
# which they would slow the other side down.
PAUSE_S = 0.1


class Refused(Exception):
    """A side ended before it answered: it can't do what it was asked for."""


class Side:
    """A process that works on request."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(
            [str(c) for c in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def read(self):
        """Wait for a line and decode it."""
        line = self.process.stdout.readline()
        if not line:
            raise Refused(f"{self.name}: exit status {self.process.wait()}")
        return json.loads(line)

    def ask(self, request):
        """Send a line and return the answer."""
        time.sleep(PAUSE_S)
        with contextlib.suppress(BrokenPipeError):  # read tells
            self.process.stdin.write(f"{request}\n")
        return self.read()

    def close(self):
        """End the process and return the rest of what it said."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        rest = [json.loads(line) for line in self.process.stdout]
        self.process.wait()
        return rest


class Sides:
    """Several of them, ended together."""

    def __init__(self):
        self.all = []

    def __enter__(self):
        return self

    def add(self, name, command):
        self.all.append(Side(name, command))
        return self.all[-1]

    def __exit__(self, *_):
        for side in self.all:
            side.close()


def engine(*args):
    """The command line of Troupe's side."""
    return [options.engine, "bench", *args, "--on-request"]


def python(script, *args):
    """The command line of a peer's side, run by the same interpreter."""
    return [sys.executable, HERE / script, *args]


options = argparse.Namespace(engine=ENGINE)


def parser(text, rounds):
    """A parser of the options that all comparisons have; parse() reads them."""
    p = argparse.ArgumentParser(description=text)
    p.add_argument("--engine", default=ENGINE, help="the program to measure (default: %(default)s)")
    p.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="default: 1 2")
    p.add_argument("--rounds", type=int, default=rounds, help="turns of each side (default: %(default)s)")
    return p


def parse(p):
    """Read the command line, and remember which engine to measure."""
    given = p.parse_args()
    options.engine = given.engine
    return given


def quantile(values, q):
    """The value that a share q of the values is below."""
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def spread(values, digits=0):
    """The median, and the values that a tenth is below and above."""
    m, low, high = statistics.median(values), quantile(values, 0.1), quantile(values, 0.9)
    return f"{m:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def interval(values):
    """The 95 % interval of the median: each value is above it or below with 1/2."""
    values, n = sorted(values), len(values)
    below, k = 0.0, 0  # the probability that at most k values are below the median
    while k < n // 2 and below + math.comb(n, k) / 2**n <= 0.025:
        below += math.comb(n, k) / 2**n
        k += 1
    return values[max(0, k - 1)], values[n - max(1, k)]


def ratios(ours, theirs):
    """Ours by theirs, turn by turn."""
    return [a / b for a, b in zip(ours, theirs)]


def geomean(values):
    """The geometric mean."""
    return math.exp(statistics.fmean(math.log(v) for v in values))


def row(*cells):
    """Print a row of a Markdown table."""
    print("| " + " | ".join(str(c) for c in cells) + " |", flush=True)


def head(*cells):
    """Print the head of a Markdown table."""
    row(*cells)
    row(*["---"] * len(cells))
