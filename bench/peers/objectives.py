"""Losses of preferences beside TRL, and divergences from a teacher beside torch.nn.functional.kl_div: values and gradients.

Makes a small random GPT-2 with a tokenizer of bytes. Of each loss of [preference] Troupe trains two steps in float32, so that the
model of the second step is not its reference. TRL's own trainer then computes the loss of that step: its tokens, its batch, its code,
with the same two models in float64. The gradient is the difference of Troupe's weights before and after the step, by the learning
rate. Of each loss of [distill] Troupe trains one step, whose loss and gradient are those of kl_div, in float64 and in float32.

Prints for each how far Troupe is, relative to the loss, and to the norm of the gradient of all weights. It exits with 1 if a loss is
more than 1e-6 apart, or a gradient more than 1e-5.

What TRL defines otherwise is left out by the choice of the data and the settings:
- orpo: TRL's mean loss of tokens is over all tokens of a batch, with the prompts. Here each prompt is one token, which no token
  precedes, and all chosen answers are equally long.
- simpo: TRL's CPOTrainer adds a loss of tokens unless cpo_alpha is 0.
- dpo: TRL has no label_smoothing in its loss "sigmoid" any more; its "robust" is another loss. So it is 0 here.
- kto: TRL pairs answers with other prompts in each batch. Here one batch has all.

Needs pip install trl. make check-trl runs it, with --parts kl if TRL is not to be installed.
"""

import argparse
import json
import logging
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F
import transformers

from side import ENGINE, head, row

LOSS, GRADIENT = 1e-6, 1e-5  # the limits
PROMPTS = ["one", "a bubble is", "who waits", "7 plus", "rank", "of the grid", "x", "stages"]
CHOSEN = [" and two", " time in which a stage waits", " a stage", " 4 is 11", " three", " a member", " yes", " have chunks"]
REJECTED = [" or", " air", " nobody waits", " 4 is 12 or 13", " of all", " no", " maybe, maybe not", " are"]
STEP = 0.05  # how far a step moves the weights, by their norm: rounding of the weights then hides little of the gradient

PREFERENCES = [
    {"loss": "dpo", "beta": 0.1},
    {"loss": "ipo", "beta": 0.4},
    {"loss": "kto", "beta": 0.3, "desirable_weight": 1.3, "undesirable_weight": 0.8},
    {"loss": "orpo", "beta": 0.5},
    {"loss": "simpo", "beta": 2.0, "gamma": 0.7},
    {"loss": "simpo", "beta": 2.0, "gamma": 0.7, "label_smoothing": 0.2},
]
VOCABULARY = 258  # bytes, an end and padding
DIVERGENCES = [
    {"loss": loss, "temperature": temperature, "top_k": top_k, "weight": weight}
    for loss in ("forward_kl", "reverse_kl")
    for temperature, top_k, weight in ((1.0, VOCABULARY, 1.0), (1.0, 8, 1.0), (2.0, 8, 0.5))
]


def make(folder, hidden, seed):
    """A random model with a tokenizer, as transformers saves them."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer, raw.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    raw.add_special_tokens(["<|end|>", "<|pad|>"])
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", pad_token="<|pad|>")
    torch.manual_seed(seed)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=64, n_embd=hidden, n_layer=2, n_head=4, initializer_range=0.15, bos_token_id=None,
        eos_token_id=end, pad_token_id=pad, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def load(folder, dtype=torch.float64):
    return transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=dtype)


def norm(tensors):
    return sum(t.double().pow(2).sum() for t in tensors).sqrt().item()


def gradient(model):
    return {name: p.grad.double() for name, p in model.named_parameters()}


def apart(got, want):
    """The norm of the difference of two gradients, by that of the second."""
    return norm(got[name] - want[name] for name in want) / norm(want.values())


def write(path, rows):
    with open(path, "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)


class Runs:
    """Runs of Troupe with plain gradient descent: each step is all rows in one microbatch."""

    def __init__(self, o):
        self.o, self.count = o, 0

    def train(self, rows, sequences, steps, rate, sets):
        """The folders of the model before each step and after the last, and the losses."""
        self.count += 1
        out = os.path.join(self.o.folder, f"run-{self.count}")
        write(out + ".jsonl", rows)
        write(out + "-val.jsonl", rows[:2])
        keys = {
            "run.out": out, "run.steps": steps, "run.eval_every": 0, "run.checkpoint_every": 1, "run.best": "none",
            "run.keep": steps, "model.from": os.path.join(self.o.folder, "model"), "model.dropout": 0, "model.context": 63,
            "data.train": out + ".jsonl", "data.val": out + "-val.jsonl", "data.format": "documents",
            "batch.sequences": sequences, "batch.microbatch": sequences, "optimizer.name": "sgd", "optimizer.momentum": 0,
            "optimizer.lr": rate, "optimizer.decay": "constant", "optimizer.warmup_steps": 0, "optimizer.clip_norm": 0,
            "optimizer.weight_decay": 0, **sets,
        }  # fmt: skip
        open(out + ".toml", "w").close()
        command = [self.o.engine, "run", out + ".toml", "--quiet"]
        for key, value in keys.items():
            command += ["--set", f"{key}={value}"]
        ran = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if ran.returncode != 0:
            raise SystemExit(ran.stderr)
        lines = [json.loads(text) for text in open(os.path.join(out, "metrics.jsonl"))]
        losses = {line["step"]: line["loss"] for line in lines if line["step"] > 0}
        folders = [os.path.join(out, "checkpoints", f"step-{k:08d}") for k in range(1, steps + 1)]
        return [keys["model.from"], *folders], [losses[k] for k in range(1, steps + 1)]

    @staticmethod
    def gradient(before, after, rate):
        new = dict(load(after).named_parameters())
        return {name: (p - new[name]).detach() / rate for name, p in load(before).named_parameters()}


def rows_of(o):
    """The rows of a loss, and the sequences that Troupe makes of them."""
    if o["loss"] == "kto":
        rows = [{"prompt": p, "completion": c if k % 3 else r, "label": k % 3 > 0} for k, (p, c, r) in enumerate(zip(PROMPTS, CHOSEN, REJECTED))]
    elif o["loss"] == "orpo":
        rows = [{"prompt": p[0], "chosen": c.ljust(12, "!")[:12], "rejected": r} for p, c, r in zip(PROMPTS, CHOSEN, REJECTED)]
    else:
        rows = [{"prompt": p, "chosen": c, "rejected": r} for p, c, r in zip(PROMPTS, CHOSEN, REJECTED)]
    return rows, 2 * len(rows)


def trl(o, folder, rows, tokenizer, policy, reference):
    """The loss and the gradient of TRL's trainer, of all rows in a batch."""
    from datasets import Dataset

    usual = {
        "output_dir": os.path.join(folder, "trl"), "per_device_train_batch_size": len(rows), "bf16": False, "fp16": False, "use_cpu": True,
        "gradient_checkpointing": False, "report_to": "none", "beta": o["beta"], "disable_tqdm": True, "max_length": 63,
    }  # fmt: skip
    data = {"train_dataset": Dataset.from_list(rows), "processing_class": tokenizer}
    if o["loss"] in ("dpo", "ipo"):
        from trl import DPOConfig, DPOTrainer

        args = DPOConfig(loss_type=[{"dpo": "sigmoid"}.get(o["loss"], o["loss"])], **usual)
        t = DPOTrainer(model=policy, ref_model=reference, args=args, **data)
    elif o["loss"] == "kto":
        from trl import KTOConfig, KTOTrainer

        args = KTOConfig(desirable_weight=o["desirable_weight"], undesirable_weight=o["undesirable_weight"], **usual)
        t = KTOTrainer(model=policy, ref_model=reference, args=args, **data)
    elif o["loss"] == "orpo":
        from trl.experimental.orpo import ORPOConfig, ORPOTrainer

        t = ORPOTrainer(model=policy, args=ORPOConfig(**usual), **data)
    else:
        from trl.experimental.cpo import CPOConfig, CPOTrainer

        args = CPOConfig(loss_type="simpo", simpo_gamma=o["gamma"], label_smoothing=o.get("label_smoothing", 0.0), cpo_alpha=0.0, **usual)
        t = CPOTrainer(model=policy, args=args, **data)
    batch = t.data_collator([t.train_dataset[i] for i in range(len(rows))])
    policy.zero_grad()
    loss = t.compute_loss(policy, batch)
    loss.backward()
    assert next(policy.parameters()).dtype == torch.float64, "TRL changed the model's type"
    return loss.item(), gradient(policy)


def preferences(o, tokenizer, runs):
    """Compares [preference] with TRL, and returns whether all are near."""
    import datasets

    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    import trl as package

    datasets.disable_progress_bars()
    near = True
    head("[preference]", "loss", f"apart from TRL {package.__version__}", "gradient's norm", "apart")
    for settings in PREFERENCES:
        rows, sequences = rows_of(settings)
        start = load(os.path.join(o.folder, "model"))
        _, first = trl(settings, o.folder, rows, tokenizer, load(os.path.join(o.folder, "model")), load(os.path.join(o.folder, "model")))
        rate = STEP * norm(start.parameters()) / norm(first.values())
        sets = {f"preference.{key}": value for key, value in settings.items()}
        folders, losses = runs.train(rows, sequences, 2, rate, sets)
        want, grad = trl(settings, o.folder, rows, tokenizer, load(folders[1]), start)
        far = apart(runs.gradient(folders[1], folders[2], rate), grad)
        near &= show(settings, losses[1], want, norm(grad.values()), far)
    return near


def show(settings, loss, want, size, far, *more):
    off = abs(loss - want) / max(abs(want), 1e-12)
    bad = not (off <= LOSS and far <= GRADIENT)
    row(" ".join(f"{v}" if k == "loss" else f"{k}={v:g}" for k, v in settings.items()), f"{loss:.7f}", f"{off:.1e}", f"{size:.3g}", f"{far:.1e}",
        *more, *(["TOO FAR"] if bad else []))  # fmt: skip
    return not bad


def divergence(d, tokenizer, rows, student, teacher):
    """The loss of [distill] by kl_div, and its gradient, in the type of the models."""
    total, targets = 0, 0
    for r in rows:
        prompt = len(tokenizer(r["prompt"])["input_ids"])
        ids = torch.tensor([tokenizer(r["prompt"] + r["completion"])["input_ids"] + [tokenizer.eos_token_id]])
        z = student(input_ids=ids).logits[0, prompt - 1 : -1]
        with torch.no_grad():
            p = (teacher(input_ids=ids).logits[0, prompt - 1 : -1] / d["temperature"]).log_softmax(-1)
        q = (z / d["temperature"]).log_softmax(-1)
        if d["top_k"] < VOCABULARY:  # all others are one outcome
            likely = p.topk(d["top_k"]).indices
            others = torch.ones_like(p, dtype=torch.bool).scatter(1, likely, False)
            p, q = (torch.cat([x.gather(1, likely), x.masked_fill(~others, -torch.inf).logsumexp(1, keepdim=True)], 1) for x in (p, q))
        pair = (q, p) if d["loss"] == "forward_kl" else (p, q)
        soft = F.kl_div(*pair, reduction="sum", log_target=True)
        hard = F.cross_entropy(z, ids[0, prompt:], reduction="sum")
        total = total + (1 - d["weight"]) * hard + d["weight"] * d["temperature"] ** 2 * soft
        targets += len(z)
    loss = total / targets
    student.zero_grad()
    loss.backward()
    return loss.item(), gradient(student)


def divergences(o, tokenizer, runs):
    """Compares [distill] with kl_div, and returns whether all are near."""
    near = True
    teacher = os.path.join(o.folder, "teacher")
    make(teacher, 48, 2)
    rows = [{"prompt": p, "completion": c} for p, c in zip(PROMPTS, CHOSEN)]
    head("[distill]", "loss", f"apart from torch {torch.__version__} in float64", "gradient's norm", "apart", "torch in float32: loss", "gradient")
    for d in DIVERGENCES:
        start = os.path.join(o.folder, "model")
        want, grad = divergence(d, tokenizer, rows, load(start), load(teacher))
        single, single_grad = divergence(d, tokenizer, rows, load(start, torch.float32), load(teacher, torch.float32))
        rate = STEP * norm(load(start).parameters()) / norm(grad.values())
        folders, losses = runs.train(rows, len(rows), 1, rate, {"distill.from": teacher, **{f"distill.{k}": v for k, v in d.items()}})
        far = apart(runs.gradient(folders[0], folders[1], rate), grad)
        near &= show(d, losses[0], want, norm(grad.values()), far, f"{abs(single - want) / abs(want):.1e}", f"{apart(single_grad, grad):.1e}")
    return near


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default=ENGINE, help="the program to compare (default: %(default)s)")
    p.add_argument("--parts", nargs="+", choices=["trl", "kl"], default=["trl", "kl"], help="default: both")
    o = p.parse_args()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    near = True
    with tempfile.TemporaryDirectory() as o.folder:
        tokenizer, runs = make(os.path.join(o.folder, "model"), 32, 1), Runs(o)
        if "trl" in o.parts:
            near &= preferences(o, tokenizer, runs)
            print()
        if "kl" in o.parts:
            near &= divergences(o, tokenizer, runs)
    if not near:
        raise SystemExit(f"some losses are more than {LOSS} apart, or gradients more than {GRADIENT}")


if __name__ == "__main__":
    main()
