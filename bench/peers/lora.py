"""An adapter of a published model of 135 M parameters: 50 steps beside PEFT.

Takes the first model of pretrained.py, in bfloat16 as it was published. PEFT makes an adapter and trains it; Troupe continues the
same one on the same windows. The parts:

- losses: of both; their peak memory (ru_maxrss), and that of Troupe's tuning of all weights. Then PEFT loads the trained directory,
  and transformers the merged model: the largest difference of their logits.
- speed: tokens per second after the first steps, in turns.
- layouts: the losses' bits on 1, 2 and 4 stages, in two processes, and after a kill.
- table: each model.frozen_dtype: losses, peak memory, and tokens per second in turns.

Needs pip install transformers gguf peft. For speed and memory, run it beside nothing else: see README.md.
"""

import argparse
import json
import os
import signal
import statistics
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
    off, most = (a - b).abs().max().item(), a.abs().max().item()
    print(f"PEFT loads the directory: {len(missing)} keys missing, {len(report.unexpected_keys)} unexpected; transformers loads the merged model: "
          f"{sum(len(v) for v in info.values() if v)} odd keys; logits {off:.1e} apart, {off / most:.1e} of the largest, {most:.1f}")


def write(o, name, adapter, steps, lr, stages=1, frozen="", checkpoints=0):
    """The config of a run: its file, and the run's folder."""
    out = os.path.join(o.temporary, name)
    frozen = frozen or o.frozen_dtype
    more = f', frozen_dtype = "{frozen}"' if adapter and frozen else ""
    with open(out + ".toml", "w") as f:
        f.write(f"""run = {{out = "{out}", steps = {steps}, seed = 1, eval_every = 0, checkpoint_every = {checkpoints}, best = "none"}}
model = {{from = "{o.model}", context = {o.context}, dropout = 0.0{more}}}
{f'adapter = {{from = "{o.adapter}"}}' if adapter else ""}
data = {{train = ["{o.train}"], val = ["{o.val}"]}}
batch = {{sequences = {o.sequences}, microbatch = {o.microbatch}}}
optimizer = {{lr = {lr}, warmup_steps = 0, decay = "constant", beta1 = {BETAS[0]}, beta2 = {BETAS[1]}, eps = {EPS}, weight_decay = 0.0, clip_norm = 0.0}}
pipeline = {{stages = {stages}}}
device = {{kind = "cpu", threads = {max(1, o.threads // stages)}, dtype = "{o.dtype}"}}
""")
    return out + ".toml", out


def lines_of(out):
    """The lines of a run's steps, without one that is still being written."""
    lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl")) if line.endswith("\n")]
    return list({line["step"]: line for line in lines if line["step"] > 0}.values())  # of a repeated step, the last


def train(o, name, adapter, steps, lr, **more):
    """A run of Troupe: its lines, and its peak memory."""
    config, out = write(o, name, adapter, steps, lr, **more)
    _, peak = pretrained.run([o.engine, "run", config])
    return out, lines_of(out), peak


def speed_of(o, lines):
    """Tokens per second after the first steps."""
    return (len(lines) - o.skip) * o.sequences * o.context / sum(line["step_ms"] for line in lines[o.skip :]) * 1000


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
    p.add_argument("--parts", nargs="+", choices=PARTS, default=["losses", "speed"])
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--rounds", type=int, default=3, help="turns of each side")
    p.add_argument("--turn", type=int, default=12, help="steps of a turn, and of a layout")
    p.add_argument("--full-steps", type=int, default=3, help="steps of tuning all weights; 0: none")
    p.add_argument("--skip", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--no-peer", action="store_true")
    for name in "model", "adapter", "merged", "part":
        p.add_argument("--" + name, default="")
    o = p.parse_args()
    if o.part:
        return {"make": make, "narrow": narrow, "peer": peer, "load": load}[o.part](o)
    with tempfile.TemporaryDirectory() as o.temporary:
        work, o.model = pretrained.model(NAME, o)
        narrowed = os.path.join(work, "model-bf16")
        if not os.path.exists(narrowed):
            pretrained.run([sys.executable, __file__, "--part", "narrow", "--model", o.model, "--merged", narrowed])
        o.model = narrowed
        o.adapter = os.path.join(o.temporary, "initial")
        pretrained.run(same(o, "make", 0))
        for part in o.parts:
            PARTS[part](o)


def same(o, part, steps, *more):
    """The command of a part that runs in a process of its own."""
    return [sys.executable, __file__, "--part", part, "--model", o.model, "--train", o.train, "--context", str(o.context), "--sequences", str(o.sequences),
            "--microbatch", str(o.microbatch), "--steps", str(steps), "--skip", str(o.skip), "--threads", str(o.threads), "--rank", str(o.rank),
            "--dtype", o.dtype, "--adapter", o.adapter, *["--dora"] * o.dora, *["--rslora"] * o.rslora, *more]


def losses(o):
    out, lines, ours = train(o, "lora", True, o.steps, LR)
    print(f"Troupe: {o.steps} steps of {o.sequences} x {o.context} tokens: loss {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}, "
          f"{speed_of(o, lines):.1f} tokens/s, peak {ours / 2**30:.3f} GiB", flush=True)
    if o.full_steps:
        _, _, full = train(o, "full", False, o.full_steps, 1e-5)
        print(f"tuning of all weights: peak {full / 2**30:.3f} GiB, of which the adapter takes {ours / full:.2f}", flush=True)
    if o.no_peer:
        return
    text, peak = pretrained.run(same(o, "peer", o.steps))
    theirs = json.loads(text)
    apart = max(abs(line["loss"] - loss) for line, loss in zip(lines, theirs["losses"], strict=True))
    print(f"PEFT: losses at most {apart:.1e} apart, {theirs['tokens_per_s']:.1f} tokens/s, peak {peak / 2**30:.3f} GiB, "
          f"of which Troupe takes {ours / peak:.2f}", flush=True)
    adapter, merged = os.path.join(o.temporary, "adapter"), os.path.join(o.temporary, "merged")
    pretrained.run([o.engine, "export", "--from", out, "--to", adapter])
    pretrained.run([o.engine, "export", "--from", out, "--merge", "--to", merged])
    print(pretrained.run(same(o, "load", 0, "--adapter", adapter, "--merged", merged))[0], end="", flush=True)


def speed(o):
    ratios, steps = [], o.skip + o.turn
    for turn in range(o.rounds):
        def ours():
            return speed_of(o, train(o, f"turn{turn}", True, steps, LR)[1])

        def theirs():
            return json.loads(pretrained.run(same(o, "peer", steps))[0])["tokens_per_s"]

        a, b = (ours(), theirs()) if turn % 2 == 0 else (theirs(), ours())[::-1]
        ratios.append(a / b)
        print(f"turn {turn + 1}: Troupe {a:.1f} tokens/s, PEFT {b:.1f}, ratio {a / b:.2f}", flush=True)
    print(f"tokens/s of Troupe by PEFT's: median {statistics.median(ratios):.2f}", flush=True)


def bits(out):
    return [float(line["loss"]).hex() for line in lines_of(out)]


def layouts(o):
    """The bits of a run of one stage beside those of other layouts, and of one that was killed."""
    want = None
    for name, stages, flags in ("1 stage", 1, []), ("2 stages", 2, []), ("4 stages", 4, []), ("2 stages in 2 processes", 2, ["--local-cluster", "2"]):
        config, out = write(o, f"layout{stages}{len(flags)}", True, o.turn, LR, stages=stages)
        pretrained.run([o.engine, "run", config, *flags])
        want = want or bits(out)
        print(f"{name}: {o.turn} losses, {sum(a == b for a, b in zip(bits(out), want, strict=True))} of them the bits of one stage", flush=True)
    config, out = write(o, "killed", True, o.turn, LR, stages=2, checkpoints=2)
    run = subprocess.Popen([o.engine, "run", config], stdout=subprocess.DEVNULL)
    path = os.path.join(out, "metrics.jsonl")
    while run.poll() is None and not (os.path.exists(path) and len(lines_of(out)) >= o.turn // 2):
        time.sleep(0.05)
    run.send_signal(signal.SIGKILL)
    run.wait()
    at = len(lines_of(out))
    pretrained.run([o.engine, "run", config])
    print(f"killed after step {at} of {o.turn}, and resumed: {sum(a == b for a, b in zip(bits(out), want, strict=True))} of {o.turn} losses the bits of one stage",
          flush=True)


def table(o):
    """Each type of frozen weights: a run of --steps, and turns of fewer for the speed."""
    types, rows = ("float32", "bfloat16", "int8", "nf4"), {}
    for t in types:
        _, lines, peak = train(o, t, True, o.steps, LR, frozen=t)
        rows[t] = [peak, lines[0]["loss"], lines[-1]["loss"], [speed_of(o, lines)]]
    for turn in range(o.rounds):
        for t in types if turn % 2 == 0 else types[::-1]:
            rows[t][3].append(speed_of(o, train(o, f"{t}-{turn}", True, o.skip + o.turn, LR, frozen=t)[1]))
    print(f"| model.frozen_dtype | peak, GiB | loss at step 1 | at step {o.steps} | tokens/s by bfloat16's |\n|---|---|---|---|---|")
    for t, (peak, first, last, speeds) in rows.items():
        ratio = statistics.median(a / b for a, b in zip(speeds, rows["bfloat16"][3]))
        print(f"| {t} | {peak / 2**30:.3f} | {first:.5f} | {last:.5f} | {ratio:.2f} ({statistics.median(speeds):.0f}) |", flush=True)


PARTS = {"losses": losses, "speed": speed, "layouts": layouts, "table": table}


if __name__ == "__main__":
    main()
