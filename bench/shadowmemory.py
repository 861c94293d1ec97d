"""The memory of workers that hold shadows beside what engine plan predicts, on one machine (Linux).

    python3 bench/shadowmemory.py [--width 832] [--layers 12] [--stages 4]

Trains a pipeline with cluster.shadow = "off" and then "on" in processes of bin/engine (make build), with two checkpoints. It prints for
each worker the most memory that its process has held (VmHWM) less that of a worker without ranks and less the memory that it shares with
other processes (RssShmem, through which tensors travel on one host), and the prediction of `engine plan --devices`: tensors, the copy for
a checkpoint, and the shadow. Exit status 1: a prediction is more than --within % off. It also prints what the plan says of the shared
memory: what a rank sends through it, and what others send to the rank, both of which RssShmem counts.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from faults import ENGINE, LIMIT_S, ROOT, Cluster, Run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from side import head, row  # noqa: E402

MIB = 1 << 20


def config(o, shadow, out):
    return f"""
[run]
name = "memory"
out = "{out}"
seed = 7
steps = 8
eval_every = 0
checkpoint_every = 4
keep = 1
log_every = 1

[model]
layers = {o.layers}
hidden = {o.width}
heads = {max(1, o.width // 64)}
context = {o.context}

[data]
train = ["{ROOT}/actors/*.go"]

[batch]
sequences = {o.sequences}
microbatch = {o.microbatch}

[pipeline]
stages = {o.stages}

[cluster]
shadow = "{shadow}"
rebalance = false
"""


def predicted(o, path):
    """The bytes of each rank: tensors, copy for a checkpoint, shadow; and what each shares with others to send."""
    text = subprocess.run([ENGINE, "plan", path, "--devices", str(o.stages), "--devices-per-node", str(o.stages), "--memory-gib", "1024",
                           "--seconds", "0.01", "--format", "json"],
                          capture_output=True, text=True, check=True).stdout
    plan = json.loads(text)["configured"]
    return (list(zip(plan["tensor_bytes"], plan["checkpoint_bytes"], plan.get("shadow_bytes") or [0] * o.stages)),
            plan.get("lane_bytes") or [0] * o.stages)


def line(pid, key):
    for text in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if text.startswith(key + ":"):
            return int(text.split()[1]) << 10
    sys.exit(f"process {pid} has no {key}")


def measure(o, shadow):
    """Trains, and returns by rank the predicted bytes, and the process's peak without that of an idle one and what it shares."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="troupe-memory-"))
    cluster = Cluster(place, o.stages + 1)
    try:
        run = Run(cluster, config(o, shadow, place / "out"), o.stages + 1)
        run.await_event("step 7", lambda e: e["event"] == "step" and e["step"] >= 7)
        hosts = cluster.hosts()
        shared = {name: line(p.pid, "RssShmem") for name, p in cluster.workers.items()}
        run.process.wait(LIMIT_S)
        peaks = {name: line(p.pid, "VmHWM") for name, p in cluster.workers.items()}
        idle = min(peak for name, peak in peaks.items() if name not in hosts.values())
        return predicted(o, place / "run.toml"), {rank: (peaks[name] - idle - shared[name], shared[name]) for rank, name in hosts.items()}, idle
    finally:
        cluster.end()
        shutil.rmtree(place, ignore_errors=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--width", type=int, default=832)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--stages", type=int, default=4)
    p.add_argument("--context", type=int, default=64)
    p.add_argument("--sequences", type=int, default=8)
    p.add_argument("--microbatch", type=int, default=1)
    p.add_argument("--within", type=float, default=3, help="percent by which a prediction may be off")
    p.add_argument("--shadow", nargs="+", default=["off", "on"])
    o = p.parse_args()
    off = 0
    head("shadow", "rank", "tensors, MiB", "checkpoint", "shadow", "predicted", "measured", "measured by predicted", "shared", "sends")
    sums = []
    for shadow in o.shadow:
        (want, sends), got, idle = measure(o, shadow)
        for rank, parts in enumerate(want):
            private, shared = got[rank]
            ratio = private / sum(parts)
            off = max(off, abs(ratio - 1))
            row(shadow, rank, *(f"{b / MIB:,.0f}" for b in (*parts, sum(parts), private)), f"{ratio:.3f}", f"{shared / MIB:,.0f}",
                f"{sends[rank] / MIB:,.0f}")
        sums.append(f"with shadow {shadow}, {sum(shared for _, shared in got.values()) / 2 / MIB:,.0f} MiB, predicted {sum(sends) / MIB:,.0f}")
    print("\nShared by all ranks, each page counted once: " + "; ".join(sums) + ".")
    print(f"\nA worker without ranks held {idle / MIB:.0f} MiB. The largest difference is {100 * off:.1f} %.")
    sys.exit(1 if 100 * off > o.within else 0)


if __name__ == "__main__":
    main()
