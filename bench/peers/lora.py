"""An adapter of a published model of 135 M parameters: 50 steps beside PEFT.

Takes the first model of pretrained.py, in bfloat16 as it was published. PEFT makes an adapter and trains it; Troupe continues the same one on the same windows. Prints
the losses, tokens per second after the first steps, and peak memory of both (ru_maxrss), and the peak memory of Troupe's tuning of all
weights. Then PEFT loads the trained directory, and transformers the merged model: their logits, and their largest difference.

Needs pip install transformers gguf peft. Run beside nothing else: see README.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import pretrained

LR, BETAS, EPS = 2e-4, (0.9, 0.95), 1e-8
NAME = "smollm2-135m"


def make(o):
    """A new adapter, as PEFT saves it."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    m = AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.float32)
    c = peft.LoraConfig(task_type="CAUSAL_LM", r=o.rank, lora_alpha=2 * o.rank, lora_dropout=0.0, target_modules="all-linear", use_dora=o.dora, use_rslora=o.rslora)
    peft.get_peft_model(m, c).save_pretrained(o.adapter)


def narrow(o):
    """The model in bfloat16, as it was published."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(o.model, dtype=torch.bfloat16).save_pretrained(o.merged)
    AutoTokenizer.from_pretrained(o.model).save_pretrained(o.merged)


def peer(o):
    """PEFT's side, in a process of its own, whose peak memory is its."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(o.threads)
    base = AutoModelForCausalLM.from_pretrained(o.model, dtype=getattr(torch, o.dtype))
    m = peft.PeftModel.from_pretrained(base, o.adapter, is_trainable=True)
    tok = AutoTokenizer.from_pretrained(o.model)
    x = torch.tensor(tok(open(o.train).read(), add_special_tokens=False)["input_ids"])
    m.train()
    opt = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad], lr=LR, betas=BETAS, eps=EPS, weight_decay=0)
    n = o.steps * o.sequences
    out = subprocess.run(["go", "run", "./bench/peers/windows", "1", str(len(x)), str(o.context), str(n)], cwd=pretrained.ROOT, check=True, capture_output=True, text=True).stdout
    offs, losses, began = [int(v) for v in out.split()], [], 0
    for step in range(o.steps):
        if step == o.skip:
            began = time.time()
        at = offs[step * o.sequences : (step + 1) * o.sequences]
        rows = torch.stack([x[a : a + o.context + 1] for a in at])
        opt.zero_grad()
        total = 0
        for part in rows.split(o.microbatch):
            logits = m(input_ids=part[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), part[:, 1:].flatten()) * len(part) / o.sequences
            loss.backward()
            total += loss.item()
            del logits, loss
        opt.step()
        losses.append(total)
    print(json.dumps({"losses": losses, "tokens_per_s": (o.steps - o.skip) * o.sequences * o.context / (time.time() - began)}))


def load(o):
    """By how much logits differ: of PEFT with the directory and of transformers with the merged model."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    def base(path):
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True)

    m, _ = base(o.model)
    other = peft.get_peft_model(m, peft.PeftConfig.from_pretrained(o.adapter), adapter_name="other")
    report = other.load_adapter(o.adapter, adapter_name="default")
    other.set_adapter("default")
    missing = [k for k in report.missing_keys if "lora_" in k and ".default" in k]
    merged, info = base(o.merged)
    x = torch.arange(1000, 1064)[None]
    with torch.no_grad():
        a, b = other.eval()(input_ids=x).logits, merged.eval()(input_ids=x).logits
    off = ((a - b).abs().max() / a.abs().max()).item()
    print(f"PEFT loads the directory: {len(missing)} keys missing, {len(report.unexpected_keys)} unexpected; transformers loads the merged model: "
          f"{sum(len(v) for v in info.values() if v)} odd keys; logits {off:.1e} apart, of the largest")


def train(o, name, adapter, steps, lr):
    """A run of Troupe: its lines, and its peak memory."""
    out = os.path.join(o.temporary, name)
    config = out + ".toml"
    with open(config, "w") as f:
        f.write(f"""run = {{out = "{out}", steps = {steps}, seed = 1, eval_every = 0, checkpoint_every = 0, best = "none"}}
model = {{from = "{o.model}", context = {o.context}, dropout = 0.0{o.more if adapter else ""}}}
{f'adapter = {{from = "{o.adapter}"}}' if adapter else ""}
data = {{train = ["{o.train}"], val = ["{o.val}"]}}
batch = {{sequences = {o.sequences}, microbatch = {o.microbatch}}}
optimizer = {{lr = {lr}, warmup_steps = 0, decay = "constant", beta1 = {BETAS[0]}, beta2 = {BETAS[1]}, eps = {EPS}, weight_decay = 0.0, clip_norm = 0.0}}
pipeline = {{stages = 1}}
device = {{kind = "cpu", threads = {o.threads}, dtype = "{o.dtype}"}}
""")
    _, peak = pretrained.run([o.engine, "run", config])
    lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
    return out, [line for line in lines if line["step"] > 0], peak


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", default=os.path.join(pretrained.ROOT, "bin", "engine"))
    p.add_argument("--work", default="", help="folder to keep what was downloaded in")
    p.add_argument("--train", default=os.path.join(pretrained.ROOT, "ARCHITECTURE.md"))
    p.add_argument("--val", default=os.path.join(pretrained.ROOT, "testdata", "troupe.txt"))
    p.add_argument("--rank", type=int, default=16)
    p.add_argument("--dora", action="store_true")
    p.add_argument("--rslora", action="store_true")
    p.add_argument("--dtype", default="float32")
    p.add_argument("--frozen-dtype", default="", help="model.frozen_dtype of Troupe")
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--sequences", type=int, default=4)
    p.add_argument("--microbatch", type=int, default=4)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--full-steps", type=int, default=3, help="steps of tuning all weights; 0: none")
    p.add_argument("--skip", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--no-peer", action="store_true")
    for name in "model", "adapter", "merged", "part":
        p.add_argument("--" + name, default="")
    o = p.parse_args()
    if o.part:
        return {"make": make, "narrow": narrow, "peer": peer, "load": load}[o.part](o)
    o.more = f', frozen_dtype = "{o.frozen_dtype}"' if o.frozen_dtype else ""
    with tempfile.TemporaryDirectory() as o.temporary:
        work = os.path.join(o.work or o.temporary, NAME)
        os.makedirs(work, exist_ok=True)
        packages, sha256, _ = pretrained.MODELS[NAME]
        o.model, _ = pretrained.convert(pretrained.download(packages, sha256, work), work)
        narrowed = os.path.join(work, "model-bf16")
        if not os.path.exists(narrowed):
            pretrained.run([sys.executable, __file__, "--part", "narrow", "--model", o.model, "--merged", narrowed])
        o.model = narrowed
        o.adapter = os.path.join(o.temporary, "initial")
        compare(o)


def compare(o):
    same = [sys.executable, __file__, "--model", o.model, "--train", o.train, "--context", str(o.context), "--sequences", str(o.sequences), "--microbatch", str(o.microbatch), "--steps", str(o.steps),
            "--skip", str(o.skip), "--threads", str(o.threads), "--rank", str(o.rank), "--dtype", o.dtype] + ["--dora"] * o.dora + ["--rslora"] * o.rslora
    pretrained.run([*same, "--part", "make", "--adapter", o.adapter])
    out, lines, ours = train(o, "lora", True, o.steps, LR)
    speed = (o.steps - o.skip) * o.sequences * o.context / sum(line["step_ms"] for line in lines[o.skip :]) * 1000
    print(f"Troupe: {o.steps} steps of {o.sequences} x {o.context} tokens: loss {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}, {speed:.1f} tokens/s, peak {ours / 2**30:.3f} GiB", flush=True)
    if o.full_steps:
        _, _, full = train(o, "full", False, o.full_steps, 1e-5)
        print(f"tuning of all weights: peak {full / 2**30:.3f} GiB, of which the adapter takes {ours / full:.2f}", flush=True)
    if o.no_peer:
        return
    text, peak = pretrained.run([*same, "--part", "peer", "--adapter", o.adapter])
    theirs = json.loads(text)
    apart = max(abs(line["loss"] - loss) for line, loss in zip(lines, theirs["losses"], strict=True))
    print(f"PEFT: losses at most {apart:.1e} apart, {theirs['tokens_per_s']:.1f} tokens/s, peak {peak / 2**30:.3f} GiB")
    print(f"ratios: tokens/s {speed / theirs['tokens_per_s']:.2f}, peak memory {ours / peak:.2f}", flush=True)
    adapter, merged = os.path.join(o.temporary, "adapter"), os.path.join(o.temporary, "merged")
    pretrained.run([o.engine, "export", "--from", out, "--to", adapter])
    pretrained.run([o.engine, "export", "--from", out, "--merge", "--to", merged])
    print(pretrained.run([*same, "--part", "load", "--adapter", adapter, "--merged", merged])[0], end="")


if __name__ == "__main__":
    main()
