"""Multiple choice beside transformers: the log-likelihood of every choice.

Makes 200 items from this repository's texts, and scores them with `engine eval --choices` and, on its own, with
transformers: one whole forward pass for each choice, which shares nothing with the other choices. Both compute in
float32; transformers' logits become log-probabilities in float64. The models are a random one, in a context in which
long prompts are cut, and SmolLM2-135M-Instruct (see pretrained.py). It is an error if a log-likelihood differs by more
than 1e-4, times its size where that is above 1; if the chosen answers differ; or if the accuracies or their standard
errors do (make check-choices). Without a network only the random model is checked.

Needs pip install torch transformers gguf.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

import pretrained

LIMIT = 1e-4
TEXTS = ["ARCHITECTURE.md", "README.md", "testdata/troupe.txt"]
RANDOM = "random"


def spans(text, rng, words):
    """A part of a text of some words, from the beginning of a word to the end of one."""
    at = text.index(" ", rng.randrange(len(text) - 2000)) + 1
    end = at
    for _ in range(words):
        end = text.index(" ", end) + 1
    return at, end - 1


def make(count, seed):
    """Items of several forms: the right answer is what the text says, and the others are from elsewhere."""
    rng, items = random.Random(seed), []
    texts = [open(os.path.join(pretrained.ROOT, name), encoding="utf-8").read() for name in TEXTS]
    while len(items) < count:
        text, n = rng.choice(texts), len(items)
        at, end = spans(text, rng, rng.choice([1, 5, 20, 60]))
        until = end + 1
        for _ in range(rng.choice([1, 3, 8])):
            until = text.index(" ", until) + 1
        choices = [text[end + 1 : until - 1]]
        for _ in range(rng.randint(1, 4)):
            a, b = spans(text, rng, rng.choice([1, 3, 8]))
            choices.append(text[a:b])
        if n % 7 == 0:  # a choice that another one begins with
            choices.append(choices[0] + " and more of it")
        if any(not c.strip() or len(c.encode()) > 60 for c in choices) or not text[at:end].strip():
            continue  # an answer must fit the context of the random model
        order = rng.sample(range(len(choices)), len(choices))
        item = {"choices": [choices[i] for i in order]}
        answer = order.index(0)
        item["answer"] = answer if n % 2 else chr(ord("A") + answer)
        if n % 5 == 0:
            item["question"] = text[at:end]
        else:
            item["prompt"] = text[at:end] + ["", " ", "\n"][n % 3]
        items.append(item)
    return items


def make_random(to):
    """A random model of the family llama, with a tokenizer of the texts. Its weights are large, so that choices differ."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tok.train([os.path.join(pretrained.ROOT, name) for name in TEXTS],
              trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(vocab_size=tok.get_vocab_size(), hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4,
                                 num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.15, bos_token_id=None,
                                 eos_token_id=None)).save_pretrained(to)
    PreTrainedTokenizerFast(tokenizer_object=tok).save_pretrained(to)


def score(model, items, context, threads):
    """The log-likelihoods of all choices by transformers, as lm-evaluation-harness splits prompt and choice."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(threads)
    m, tok = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(model)
    all, cut = [], 0
    for item in items:
        prompt = item.get("prompt") or f"Question: {item['question']}\nAnswer:"
        begin = prompt.rstrip(" \t\n\r")
        blanks, sums, over = prompt[len(begin) :], [], 0
        first = len(tok(begin)["input_ids"])
        for choice in item["choices"]:
            blank = "" if blanks or choice.startswith(" ") else " "
            ids = tok(begin + blanks + blank + choice)["input_ids"]
            skip = max(len(ids) - 1 - context, 0)
            over = max(over, skip)
            x = torch.tensor(ids[skip:])
            with torch.no_grad():
                p = torch.log_softmax(m(x[None, :-1]).logits[0].double(), -1)
            at = torch.arange(first - 1 - skip, len(x) - 1)
            sums.append(p[at, x[at + 1]].sum().item())
        cut += over > 0
        all.append(sums)
    return all, cut


def accuracy(items, sums, norm):
    """The share of items whose best choice is the answer, its standard error, and the choices."""
    chosen = []
    for item, s in zip(items, sums, strict=True):
        values = [v / len(c) if norm else v for v, c in zip(s, item["choices"], strict=True)]
        chosen.append(values.index(max(values)))
    answers = [a if isinstance(a, int) else ord(a) - ord("A") for a in (item["answer"] for item in items)]
    p = sum(a == c for a, c in zip(answers, chosen, strict=True)) / len(items)
    return p, math.sqrt(p * (1 - p) / (len(items) - 1)), chosen


def check(name, model, items, context, o):
    """Compares both sides for a model, and returns whether they agree."""
    with tempfile.TemporaryDirectory() as work:
        file = os.path.join(work, "items.jsonl")
        with open(file, "w", encoding="utf-8") as f:
            f.writelines(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
        command = [o.engine, "eval", "--from", model, "--choices", file, "--context", str(context), "--json", "--threads", str(o.threads)]
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode != 0:
            raise SystemExit(f"{command}: status {ran.returncode}\n{ran.stderr}")
        ours = json.loads(ran.stdout)
    theirs, cut = score(model, items, context, o.threads)
    pairs = [(a, b) for one, other in zip(ours["items"], theirs, strict=True) for a, b in zip(one["log_likelihoods"], other, strict=True)]
    absolute = max(abs(a - b) for a, b in pairs)
    scaled = max(abs(a - b) / max(abs(b), 1) for a, b in pairs)
    ok = scaled <= LIMIT and ours.get("cut", 0) == cut
    for key, norm in ("acc", False), ("acc_norm", True):
        p, err, chosen = accuracy(items, theirs, norm)
        same = chosen == [item["chosen_norm" if norm else "chosen"] for item in ours["items"]]
        ok &= same and abs(ours[key] - p) < 1e-12 and abs(ours[key + "_err"] - err) < 1e-12
        print(f"{name}: {key} {ours[key]:.4f} and {p:.4f}, the same choices: {'yes' if same else 'NO'}")
    print(f"{name}: {len(pairs)} choices of {len(items)} items, {cut} cut: log-likelihoods of {min(b for _, b in pairs):.1f} to {max(b for _, b in pairs):.1f}, "
          f"at most {absolute:.1e} apart, {scaled:.1e} of their size", flush=True)
    return ok


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--engine", default=os.path.join(pretrained.ROOT, "bin", "engine"))
    p.add_argument("--models", nargs="+", choices=[RANDOM, "smollm2-135m"], default=[RANDOM, "smollm2-135m"])
    p.add_argument("--work", default="", help="folder to keep what was downloaded in")
    p.add_argument("--items", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=os.cpu_count())
    o = p.parse_args()
    items, ok = make(o.items, o.seed), True
    for name in o.models:
        with tempfile.TemporaryDirectory() as temporary:
            work, context = os.path.join(o.work or temporary, name), 96
            os.makedirs(work, exist_ok=True)
            if name == RANDOM:
                make_random(work)
                ok &= check(name, work, items, context, o)
                continue
            packages, sha256, context = pretrained.MODELS[name]
            try:
                file = pretrained.download(packages, sha256, work)
            except subprocess.CalledProcessError:
                print(f"{name}: not checked, since pip could not download {' '.join(packages)}", flush=True)
                continue
            ok &= check(name, pretrained.convert(file, work)[0], items, context, o)
    if not ok:
        raise SystemExit(f"the sides disagree; the limit of log-likelihoods is {LIMIT}")


if __name__ == "__main__":
    sys.exit(main())
