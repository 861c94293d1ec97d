"""One process of Gloo, through torch.distributed: orders and replies are lines of JSON."""

import json
import sys
import time

import torch
import torch.distributed as dist

address, rank, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="tcp://" + address, rank=rank, world_size=n)
print(json.dumps({"Nanos": 0}), flush=True)
tensors = {}


def tensor(size):
    if size not in tensors:
        tensors[size] = torch.zeros(size // 4)
    return tensors[size]


for line in sys.stdin:
    order = json.loads(line)
    what, size, count = order["What"], order["Size"], order["Count"]
    whole, part = tensor(size), tensor(size // n)
    reply = {"Nanos": 0}
    try:
        dist.barrier()
        start = time.perf_counter_ns()
        for _ in range(count):
            if what == "all_reduce":
                dist.all_reduce(whole)
            elif what == "all_gather":
                dist.all_gather_into_tensor(whole, part)
            elif what == "reduce_scatter":
                dist.reduce_scatter_tensor(part, whole)
        reply["Nanos"] = (time.perf_counter_ns() - start) // count
    except Exception as e:
        reply["Error"] = str(e)
    print(json.dumps(reply), flush=True)
