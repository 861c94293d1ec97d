"""Direct preference optimization of a published model: how its margins grow, and what the reference model costs.

Makes pairs from the paragraphs of texts: the chosen answer continues its prompt, the rejected one continues another prompt.
Trains an adapter on SmolLM2-135M (of pretrained.py) with [preference], a run of --steps. Prints the margins and accuracies of its
first and last steps and of the validation, and the time of the reference's forward pass over all pairs, by that of as many pairs
in steps, and the peak memory of the run. Troupe alone.

Needs pip install transformers gguf. Run it beside nothing else: see README.md.
"""

import argparse
import json
import os
import statistics
import tempfile

import lora
import packing
import pretrained


def pairs(context):
    """Prompts, each with its own answer and the one of the next."""
    talks = [c["messages"][:2] for c in packing.conversations(context)]
    for talk, other in zip(talks, talks[1:] + talks[:1]):
        yield {"prompt": talk[:1], "chosen": talk[1:], "rejected": other[1:]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=os.path.join(pretrained.ROOT, "bin", "engine"))
    p.add_argument("--work", default="", help="folder to keep what was downloaded in")
    p.add_argument("--loss", default="dpo")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--context", type=int, default=128)
    p.add_argument("--pairs", type=int, default=100)
    p.add_argument("--sequences", type=int, default=8, help="of a step: two for each pair")
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-4)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as o.temporary:
        _, model = pretrained.model(lora.NAME, o)
        data, out = os.path.join(o.temporary, "pairs.jsonl"), os.path.join(o.temporary, "run")
        with open(data, "w") as f:
            f.writelines(json.dumps(pair) + "\n" for pair in list(pairs(o.context))[: o.pairs])
        with open(out + ".toml", "w") as f:
            f.write(f"""run = {{out = "{out}", steps = {o.steps}, seed = 1, eval_every = {o.steps}, checkpoint_every = 0, best = "none"}}
model = {{from = "{model}", context = {o.context}, dropout = 0.0}}
adapter = {{rank = 8}}
preference = {{loss = "{o.loss}"}}
data = {{train = ["{data}"], format = "documents", val_fraction = 0.2}}
batch = {{sequences = {o.sequences}, microbatch = {o.sequences}}}
optimizer = {{lr = {o.lr}, warmup_steps = 5, decay = "constant", weight_decay = 0.0}}
device = {{kind = "cpu", threads = {o.threads}, dtype = "{o.dtype}"}}
""")
        _, peak = pretrained.run([o.engine, "run", out + ".toml"])
        # The run writes its config, loads the reference model and computes all pairs.
        kept, took = os.path.join(out, "reference.json"), None
        if os.path.exists(kept):
            took = os.path.getmtime(kept) - os.path.getmtime(os.path.join(out, "config.toml"))
        lines = lora.lines_of(out)
    tenth = max(1, len(lines) // 10)
    for name, part in ("first", lines[:tenth]), ("last", lines[-tenth:]):
        margin, right = (statistics.mean(line["metrics"][key] for line in part) for key in ("rewards_margin", "accuracy"))
        print(f"{name} {len(part)} steps: margin {margin:.4f}, accuracy {right:.2f}")
    print("validation:", lines[-1]["val_metrics"])
    step = statistics.median(line["step_ms"] for line in lines) / 1000
    as_many = step * o.pairs / (o.sequences / 2)
    if took is not None:
        print(f"reference: {took:.1f} s for {o.pairs} pairs, which take {as_many:.1f} s in steps: {took / as_many:.2f}; {took / step / o.steps:.2f} of a step for each step of the run")
    print(f"peak memory: {peak / 2**20:,.0f} MiB")


if __name__ == "__main__":
    main()
