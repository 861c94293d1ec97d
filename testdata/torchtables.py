"""PyTorch's schedules as tables with communications, and Troupe's tables in PyTorch.

    python3 torchtables.py write FOLDER --count 120 --seed 1

writes that many tables of PyTorch's multi-stage schedules, of random sizes and options: each as
NUMBER.comms.csv, with communications, and NUMBER.compute.csv, without; and index.json, what they are.

    python3 torchtables.py read FOLDER

loads every .csv file of a folder whose index.json says how many ranks, stages and microbatches each
has, as the table with communications of a runtime of PyTorch's, and has PyTorch simulate those that
it can. make check-torch-tables runs both.
"""

import argparse
import json
import os
import random
import sys
from types import SimpleNamespace

import torch
from torch.distributed.pipelining import schedules

SCHEDULES = {
    "Interleaved1F1B": schedules.ScheduleInterleaved1F1B,
    "InterleavedZeroBubble": schedules.ScheduleInterleavedZeroBubble,
    "LoopedBFS": schedules.ScheduleLoopedBFS,
    "ZBVZeroBubble": schedules.ScheduleZBVZeroBubble,
    "DualPipeV": schedules.ScheduleDualPipeV,
}
V_SHAPED = ("ZBVZeroBubble", "DualPipeV")


def stages(ranks, chunks, total):
    """Stages of rank 0, of which schedules ask for their places alone."""
    return [
        SimpleNamespace(stage_index=i, num_stages=total, group_size=ranks, group_rank=0, group=None, submod=None,
                        is_first=i == 0, is_last=i == total - 1, has_backward=True)
        for i in range(chunks)
    ]


def draw(name, r):
    """Random sizes and options; None where the schedule does not take them."""
    ranks, chunks, microbatches = r.randint(1, 5), r.randint(1, 4), r.randint(1, 14)
    if name in V_SHAPED:
        chunks = 2
    options = {"max_active_stages": r.randint(2, 4), "defer_pp_recv": r.random() < 0.3, "defer_reduce_grad_wait": r.random() < 0.5}
    if r.random() < 0.3:
        options["unshard_lookahead"] = "auto"
    if r.random() < 0.3:
        options["max_outstanding_sends"] = r.randint(1, 6)
    try:
        made = SCHEDULES[name](stages(ranks, chunks, ranks * chunks), microbatches, loss_fn=lambda a, b: 0, **options)
    except ValueError:
        return None
    return made, {"schedule": name, "ranks": ranks, "stages": ranks * chunks, "microbatches": microbatches, "options": options}


def write(folder, count, seed):
    r = random.Random(seed)
    names, index = list(SCHEDULES), []
    while len(index) < count:
        drawn = draw(names[len(index) % len(names)], r)
        if drawn is None:
            continue
        made, what = drawn
        number = f"{len(index):03d}"
        made._dump_csv(os.path.join(folder, number + ".comms.csv"), format="compute_comms")
        made._dump_csv(os.path.join(folder, number + ".compute.csv"), format="compute_only")
        index.append({"name": number, **what})
    with open(os.path.join(folder, "index.json"), "w") as f:
        json.dump(index, f)
    print(f"PyTorch {torch.__version__} wrote {count} tables of {len(names)} schedules (seed {seed})")


def read(folder):
    with open(os.path.join(folder, "index.json")) as f:
        index = json.load(f)
    simulated = 0
    for what in index:
        path = os.path.join(folder, what["name"] + ".csv")
        runtime = schedules._PipelineScheduleRuntime(
            stages(what["ranks"], 1, what["stages"]), what["microbatches"], loss_fn=lambda a, b: 0)
        try:
            runtime._load_csv(path, format="compute_comms")
            with open(path) as f:
                if "OVERLAP" not in f.read():  # which PyTorch's simulator does not know
                    runtime._simulate()
                    simulated += 1
        except Exception as e:
            sys.exit(f"{what}: {type(e).__name__}: {e}")
    print(f"PyTorch {torch.__version__} loaded {len(index)} tables with communications, and simulated {simulated}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["write", "read"])
    p.add_argument("folder")
    p.add_argument("--count", type=int, default=120)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    if a.what == "write":
        write(a.folder, a.count, a.seed)
    else:
        read(a.folder)


main()
