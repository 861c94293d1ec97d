"""Trains a model from preferences with plain PyTorch in float64, beside which make check-preferences compares Troupe.

preferences.py MODEL ANSWERS VALIDATION STEPS LR prints a line of JSON for each loss of stdin, which has a line of JSON for each:
{"loss": "dpo", "beta": 0.1, ...}. Tokens are bytes. Each step is all of ANSWERS in one batch. The losses are those of TRL (dpo_trainer.py,
kto_trainer.py, orpo_trainer.py, cpo_trainer.py), except that ORPO's mean loss of tokens is that of each answer, without its prompt.
"""

import copy
import json
import sys

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM


def lines(path):
    return [json.loads(line) for line in open(path) if line.strip()]


def log_probabilities(model, pairs):
    """Returns the sums of the answers' log-probabilities and their numbers of tokens, for pairs of (prompt, answer)."""
    longest = max(len(p) + len(a) for p, a in pairs)
    ids = torch.zeros(len(pairs), longest, dtype=torch.long)
    mask = torch.zeros(len(pairs), longest, dtype=torch.bool)
    for i, (p, a) in enumerate(pairs):
        text = list((p + a).encode())
        ids[i, : len(text)] = torch.tensor(text)
        mask[i, len(p.encode()) : len(text)] = True
    logp = model(input_ids=ids).logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]
    mask = mask[:, 1:]
    return (logp * mask).sum(1), mask.sum(1).double()


def answers(rows, kto):
    if not kto:
        return [(r["prompt"], r[k]) for r in rows for k in ("chosen", "rejected")]
    return [(r["prompt"], c) for i, r in enumerate(rows) for c in (r["completion"], rows[i - 1]["completion"])]


def loss_of(o, logp, n, ref, labels):
    """Returns the mean loss, and the metrics."""
    name, beta, eps = o["loss"], o["beta"], o.get("label_smoothing", 0.0)
    w, l = logp[0::2], logp[1::2]
    nw, nl = n[0::2], n[1::2]
    rw, rl = w - ref[0::2], l - ref[1::2]
    if name == "kto":
        kl = rl.mean().detach().clamp(min=0)
        good = torch.tensor(labels)
        losses = torch.where(good, o["desirable_weight"] * (1 - torch.sigmoid(beta * (rw - kl))),
                             o["undesirable_weight"] * (1 - torch.sigmoid(beta * (kl - rw))))
        return losses.mean(), {"kl": kl.item(), "rewards_chosen": (beta * rw[good]).mean().item(),
                               "rewards_rejected": (beta * rw[~good]).mean().item()}
    if name == "dpo":
        h = beta * (rw - rl)
        losses, rewards = -F.logsigmoid(h) * (1 - eps) - F.logsigmoid(-h) * eps, (beta * rw, beta * rl)
    elif name == "ipo":
        losses, rewards = (rw / nw - rl / nl - 1 / (2 * beta)) ** 2, (beta * rw, beta * rl)
    elif name == "simpo":
        h = beta * (w / nw - l / nl - o["gamma"] / beta)
        losses, rewards = -F.logsigmoid(h) * (1 - eps) - F.logsigmoid(-h) * eps, (beta * w / nw, beta * l / nl)
    elif name == "orpo":
        a, b = w / nw, l / nl
        odds = (a - b) - (torch.log1p(-torch.exp(a)) - torch.log1p(-torch.exp(b)))
        losses, rewards = -a - beta * F.logsigmoid(odds), (beta * a, beta * b)
    c, r = (x.detach() for x in rewards)
    return losses.mean(), {"rewards_chosen": c.mean().item(), "rewards_rejected": r.mean().item(), "rewards_margin": (c - r).mean().item(),
                           "accuracy": (c > r).double().mean().item()}


def main():
    folder, train, val, steps, lr = sys.argv[1:6]
    start = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64).eval()
    for line in sys.stdin:
        o = json.loads(line)
        kto = o["loss"] == "kto"
        rows, held = lines(train + (".kto" if kto else "")), lines(val + (".kto" if kto else ""))
        model, labels = copy.deepcopy(start), [r.get("label") for r in rows]
        with torch.no_grad():
            ref, _ = log_probabilities(start, answers(rows, kto))
            val_ref, _ = log_probabilities(start, answers(held, kto))
        out = {"losses": [], "metrics": [], "val_losses": []}

        def validate():
            with torch.no_grad():
                logp, n = log_probabilities(model, answers(held, kto))
                out["val_losses"].append(loss_of(o, logp, n, val_ref, [r.get("label") for r in held])[0].item())

        validate()
        for _ in range(int(steps)):
            logp, n = log_probabilities(model, answers(rows, kto))
            loss, metrics = loss_of(o, logp, n, ref, labels)
            model.zero_grad()
            loss.backward()
            out["losses"].append(loss.item())
            out["metrics"].append(metrics)
            with torch.no_grad():
                for p in model.parameters():
                    p -= float(lr) * p.grad
        validate()
        print(json.dumps(out), flush=True)


main()
