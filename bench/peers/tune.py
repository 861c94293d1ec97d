"""engine tune under limits of memory: what it chooses, that it fits, and how long it takes.

Runs engine tune on SmolLM2-135M (of pretrained.py) and conversations, in a memory control group for each of --gib (Linux, as root).
Prints for each limit what was chosen, the forecast, the peak of anonymous memory, read 20 times a second, and the time.

Needs pip install transformers gguf. For times, run it beside nothing else: see README.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import lora
import packing
import pretrained

sys.path.insert(0, os.path.join(pretrained.ROOT, "bench"))
import large  # noqa: E402


def anonymous(group):
    """The bytes of a control group that are no copies of files."""
    with open(os.path.join(group, "memory.stat")) as f:
        stat = dict(line.split() for line in f)
    return int(stat["total_rss"] if "total_rss" in stat else stat["anon"])


def tune(o, gib):
    group, _ = large.limited(gib)
    out = os.path.join(o.temporary, f"run{gib}")
    command = [o.engine, "tune", o.model, o.data, "--steps", str(o.steps), "--dir", out]

    def enter():
        with open(os.path.join(group, "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))

    began, peak = time.time(), 0
    with open(out + ".log", "w+") as log:
        p = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=enter)
        while p.poll() is None:
            peak = max(peak, anonymous(group))
            time.sleep(0.05)
        log.seek(0)
        text = log.read()
    os.rmdir(group)
    chosen = re.search(r"^chosen: (.*?): about ([0-9.]+ \w+)", text, re.MULTILINE)
    steps = len(lora.lines_of(out)) if os.path.exists(os.path.join(out, "metrics.jsonl")) else 0
    end = f"{steps} steps" if p.returncode == 0 else f"**ended with {p.returncode} after {steps} steps**: {text[-300:]}"
    name, forecast = chosen.groups() if chosen else ("nothing", "")
    print(f"| {gib} GiB | {name} | {forecast} | {peak / 2**30:.2f} GiB | {(time.time() - began) / 60:.1f} min | {end} |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=os.path.join(pretrained.ROOT, "bin", "engine"))
    p.add_argument("--work", default="", help="folder to keep what was downloaded in")
    p.add_argument("--gib", type=float, nargs="+", default=[2, 4, 8])
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--conversations", type=int, default=300)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as o.temporary:
        _, o.model = pretrained.model(lora.NAME, o)
        o.data = os.path.join(o.temporary, "chat.jsonl")
        with open(o.data, "w") as f:
            f.writelines(json.dumps(c) + "\n" for c in packing.conversations(512)[: o.conversations])
        print("| limit | chosen | forecast | peak | time | end |\n|---|---|---|---|---|---|", flush=True)
        for gib in o.gib:
            tune(o, gib)


if __name__ == "__main__":
    main()
