"""Packed documents beside padded ones: targets per second of tuning a published model.

Makes conversations from the paragraphs of texts, of a mean length of at most a quarter of the context. Tunes SmolLM2-135M (of
pretrained.py) on them: packed (data.packing = "first-fit"), and not packed with microbatches of --microbatches documents, each padded
to its longest. All have about the same number of tokens in a step. The sides run in alternate turns. Prints the median targets/s of
each side, by those of padded microbatches of 4 and of the best size.

Needs pip install transformers gguf. Run it beside nothing else: see README.md.
"""

import argparse
import glob
import json
import os
import random
import statistics
import tempfile

import lora
import pretrained


def conversations(context):
    """Questions and answers from the paragraphs of this repository's documents, without the long ones: as in chats, half of them end after
    a turn, half of the others after two, and so on."""
    turns = []
    for name in sorted(glob.glob(os.path.join(pretrained.ROOT, "docs", "*.md")) + glob.glob(os.path.join(pretrained.ROOT, "*.md"))):
        for paragraph in open(name).read().split("\n\n"):
            text = paragraph.strip()
            if 20 <= len(text) <= 2 * context and text[0] not in "#`|<" and "<|" not in text:
                turns.append([{"role": "user", "content": "Continue: " + text[: len(text) // 4]}, {"role": "assistant", "content": text[len(text) // 4 :]}])
    draw = random.Random(1)
    draw.shuffle(turns)
    found = []
    while turns:
        messages = turns.pop()
        while turns and draw.random() < 0.5:
            messages = messages + turns.pop()
        found.append({"messages": messages})
    return found


def write(o, name, packing, sequences, microbatch):
    out = os.path.join(o.temporary, name)
    with open(out + ".toml", "w") as f:
        f.write(f"""run = {{out = "{out}", steps = {o.skip + o.turn}, seed = 1, eval_every = 0, checkpoint_every = 0, best = "none"}}
model = {{from = "{o.model}", context = {o.context}, dropout = 0.0}}
data = {{train = ["{o.data}"], format = "documents", packing = "{packing}", val_fraction = 0.1}}
batch = {{sequences = {sequences}, microbatch = {microbatch}}}
optimizer = {{lr = 1e-5, warmup_steps = 0, decay = "constant"}}
device = {{kind = "cpu", threads = {o.threads}, dtype = "{o.dtype}"}}
""")
    return out + ".toml", out


def turn(o, name, packing, sequences, microbatch):
    """Targets per second, and how full the sequences were."""
    config, out = write(o, name, packing, sequences, microbatch)
    pretrained.run([o.engine, "run", config])
    lines = lora.lines_of(out)[o.skip :]
    return sum(line["targets"] for line in lines) / sum(line["step_ms"] for line in lines) * 1000, statistics.mean(line["full_pct"] for line in lines), lines


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=os.path.join(pretrained.ROOT, "bin", "engine"))
    p.add_argument("--work", default="", help="folder to keep what was downloaded in")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--context", type=int, default=512)
    p.add_argument("--sequences", type=int, default=8, help="packed sequences of a step")
    p.add_argument("--microbatches", type=int, nargs="+", default=[1, 2, 4, 8], help="sizes of those that are not packed")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--turn", type=int, default=3, help="steps of a turn")
    p.add_argument("--skip", type=int, default=1)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as o.temporary:
        _, o.model = pretrained.model(lora.NAME, o)
        o.data = os.path.join(o.temporary, "conversations.jsonl")
        with open(o.data, "w") as f:
            f.writelines(json.dumps(c) + "\n" for c in conversations(o.context))
        # The first turn says how full single documents are: as many of them as fill the packed sequences make a step.
        _, full, _ = turn(o, "first", "none", 8, 1)
        most = max(o.microbatches)
        documents = max(most, round(o.sequences * 100 / full / most) * most)
        print(f"documents have {full * o.context / 100:.0f} tokens on average, {full:.0f} % of {o.context}; a step has {o.sequences} packed sequences or {documents} documents",
              flush=True)
        sides = {"packed": ("first-fit", o.sequences, 1), **{f"padded, {m}": ("none", documents, m) for m in o.microbatches}}
        speeds, fulls = {name: [] for name in sides}, {}
        for n in range(o.rounds):
            for name in list(sides) if n % 2 == 0 else list(sides)[::-1]:
                s, fulls[name], _ = turn(o, f"{name}-{n}".replace(", ", "-"), *sides[name])
                speeds[name].append(s)
                print(f"round {n + 1}: {name}: {s:.0f} targets/s", flush=True)
        best = max((name for name in sides if name != "packed"), key=lambda name: statistics.median(speeds[name]))
        print("| documents in a microbatch | targets/s | full, % | packed by it |\n|---|---|---|---|")
        for name in sides:
            ratios = [a / b for a, b in zip(speeds["packed"], speeds[name])]
            mark = " (the best)" if name == best else ""
            print(f"| {name}{mark} | {statistics.median(speeds[name]):.0f} | {fulls[name]:.1f} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


if __name__ == "__main__":
    main()
