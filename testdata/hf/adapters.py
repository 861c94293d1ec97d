"""Adapters of small random models, trained and loaded by PEFT, for TestAdaptersInPEFT (make check-peft).

    python3 adapters.py write FOLDER OFFSETS [NAME ...]        # with torch, transformers 5.24 and peft 0.21

writes for each entry of ADAPTERS to FOLDER/NAME:

    base                    a model of models.py, as transformers saves it
    initial                 a new adapter of it, as PEFT saves it
    data.bin                token ids
    expected.json           the losses of STEPS steps of AdamW on the windows at OFFSETS (a file with one offset a line)
    expected.safetensors    the gradients of the first step, and the logits of the trained adapter

    python3 adapters.py read FOLDER

loads what Troupe wrote: FOLDER/NAME/adapter in PEFT, without a missing or unexpected key, and FOLDER/NAME/merged in
transformers. Their logits must be those that Troupe computed, in FOLDER/NAME/logits.safetensors.
"""

import json
import os
import sys
import warnings

import numpy
import peft
import safetensors.torch
import torch
import transformers

import models

STEPS, SEQUENCES, CONTEXT, TOKENS = 50, 4, 24, 3000
LR, BETAS, EPS = 2e-3, (0.9, 0.95), 1e-8
LIMIT = 1e-5  # logits, of their largest

# A model of models.py, and what LoraConfig says.
ADAPTERS = {
    "gpt2": ("gpt2", dict(target_modules="all-linear", fan_in_fan_out=True)),
    "gpt2-rslora": ("gpt2", dict(target_modules=["c_attn"], use_rslora=True, fan_in_fan_out=True)),
    "llama": ("llama", dict(target_modules=["q_proj", "v_proj"])),
    "llama-rslora": ("llama-biases-llama3", dict(target_modules="all-linear", use_rslora=True)),
    "llama-dora": ("llama", dict(target_modules="all-linear", use_dora=True)),
    "llama-patterns": ("llama", dict(target_modules=["q_proj", "down_proj"], rank_pattern={"layers.1.self_attn.q_proj": 2, "down_proj": 6},
                                     alpha_pattern={r".*\.0\.mlp\.down_proj": 3}, modules_to_save=["lm_head", "model.norm"])),
    "mistral": ("mistral", dict(target_modules="all-linear", exclude_modules=["k_proj"], layers_to_transform=None)),
    "qwen2-tied": ("qwen2", dict(target_modules=["q_proj", "o_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    "qwen2-dora": ("qwen2", dict(target_modules=["q_proj", "gate_proj"], use_dora=True)),
    "qwen3": ("qwen3", dict(target_modules="all-linear")),
    "qwen3_5": ("qwen3_5", dict(target_modules="all-linear")),
    "mixtral-down": ("mixtral", dict(target_modules=["v_proj"], target_parameters=["mlp.experts.down_proj"])),
    "qwen3_moe-experts": ("qwen3_moe", dict(target_modules=["q_proj", "o_proj"], target_parameters=["experts.gate_up_proj", "experts.down_proj"])),
    "gpt_oss": ("gpt_oss", dict(target_modules="all-linear")),
    "gpt_oss-experts": ("gpt_oss", dict(target_modules=[], target_parameters=["experts.gate_up_proj", "experts.down_proj"])),
    "smollm3": ("smollm3", dict(target_modules="all-linear", layers_to_transform=None)),
    "granite": ("granite", dict(target_modules="all-linear")),
    "olmo2": ("olmo2", dict(target_modules="all-linear")),
    "olmo3": ("olmo3", dict(target_modules=["q_proj", "v_proj"], layers_to_transform=[1, 3])),
    "phi3": ("phi3", dict(target_modules="all-linear")),
    "gemma2": ("gemma2", dict(target_modules="all-linear")),
    "gemma3": ("gemma3", dict(target_modules="all-linear")),
    "gemma4": ("gemma4", dict(target_modules="all-linear")),
    "gemma4-keys": ("gemma4-keys", dict(target_modules=["q_proj", "k_proj", "o_proj"])),
    "gemma4-small": ("gemma4-small", dict(target_modules="all-linear")),
    "gemma4-small-inputs": ("gemma4-small-keys", dict(target_modules=["per_layer_model_projection", "per_layer_input_gate", "per_layer_projection", "v_proj"])),
}
FUSED = {"qkv_proj": 3, "gate_up_proj": 2, "in_proj_qkv": 3}  # layers in one tensor: Troupe has an adapter for each
PARTS = {"phi3": 6, "qwen3_5": 6, "qwen3_moe": 2, "gpt_oss": 2}  # so that their ranks can be split


def text(n):
    """Ids with a pattern that can be learned."""
    draw = numpy.random.default_rng(5)
    at, ids = 7, []
    for _ in range(n):
        at = (at * 5 + 3) % 127 if draw.random() < 0.7 else int(draw.integers(models.VOCAB))
        ids.append(at)
    return numpy.array(ids, dtype="<u2")


def block_diagonal(model, config):
    """Trains one adapter for each part of a tensor with several layers: the other blocks of B stay 0."""
    for name, module in model.named_modules():
        if getattr(module, "parameter_name", None) == "gate_up_proj":
            block_diagonal_experts(module, config)
            continue
        parts = FUSED.get(name.split(".")[-1])
        if parts is None or not hasattr(module, "lora_B"):
            continue
        attn = config.get_text_config()
        head = getattr(attn, "head_dim", None) or attn.hidden_size // attn.num_attention_heads
        if name.endswith("in_proj_qkv"):
            rows = 2 * [attn.linear_num_key_heads * attn.linear_key_head_dim] + [attn.linear_num_value_heads * attn.linear_value_head_dim]
        else:
            rows = [attn.num_attention_heads * head] + 2 * [attn.num_key_value_heads * head] if parts == 3 else 2 * [attn.intermediate_size]
        weight = module.lora_B["default"].weight
        rank = weight.shape[1] // parts
        mask = torch.zeros_like(weight)
        at = 0
        for i, n in enumerate(rows):
            mask[at:at + n, i * rank:(i + 1) * rank] = 1
            at += n
        weight.register_hook(lambda grad, mask=mask: grad * mask)


def block_diagonal_experts(module, config):
    """The same for gate and up of experts: a column of B for each rank and expert, the rows of both one after the other, or by turns."""
    weight = module.lora_B["default"].weight
    half = weight.shape[1] // 2
    mask = torch.zeros_like(weight)
    gate, up = (slice(0, None, 2), slice(1, None, 2)) if config.model_type == "gpt_oss" else (slice(0, len(mask) // 2), slice(len(mask) // 2, None))
    mask[gate, :half] = 1
    mask[up, half:] = 1
    weight.register_hook(lambda grad: grad * mask)


def write(path, offsets, kind, changes):
    config = models.config_of(*models.MODELS[kind])
    base = models.model_of(config, 100)
    base.save_pretrained(os.path.join(path, "base"))
    torch.manual_seed(3)
    changes = {k: v for k, v in changes.items() if v is not None}
    parts = PARTS.get(kind, 1)
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", r=4 * parts, lora_alpha=8 * parts, lora_dropout=0.0, **changes))
    model.save_pretrained(os.path.join(path, "initial"), save_embedding_layers=False)
    if kind in PARTS:
        block_diagonal(model, config)
    ids = text(TOKENS)
    ids.tofile(os.path.join(path, "data.bin"))
    x = torch.from_numpy(ids.astype("int64"))
    trained = {k: p for k, p in model.named_parameters() if p.requires_grad}
    opt = torch.optim.AdamW(trained.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=0)
    losses, tensors = [], {}
    for step in range(STEPS):
        rows = torch.stack([x[a:a + CONTEXT + 1] for a in offsets[step * SEQUENCES:(step + 1) * SEQUENCES]])
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        if step == 0:
            for key, p in trained.items():
                tensors["grad." + key.replace(".default", "").replace(".modules_to_save", "").removeprefix("base_model.model.")] = p.grad.clone()
        opt.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        tensors["logits"] = model(input_ids=x[None, :CONTEXT], use_cache=False).logits[0].float()
    safetensors.torch.save_file({k: v.detach().contiguous() for k, v in tensors.items()}, os.path.join(path, "expected.safetensors"))
    with open(os.path.join(path, "expected.json"), "w") as f:
        json.dump(dict(losses=losses, sequences=SEQUENCES, context=CONTEXT, lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS), f)


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.from_numpy(ids[None, :CONTEXT].astype("int64")), use_cache=False).logits[0].float()


def base_of(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", experts_implementation="eager", dtype=torch.float32).eval()


def read(folder):
    failed = 0
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not os.path.isdir(os.path.join(path, "adapter")):
            continue
        want = safetensors.torch.load_file(os.path.join(path, "logits.safetensors"))["logits"]
        ids = numpy.fromfile(os.path.join(path, "data.bin"), dtype="<u2")
        odd = []
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            # A new adapter, so that load_adapter reports the keys.
            config = peft.PeftConfig.from_pretrained(os.path.join(path, "adapter"))
            model = peft.get_peft_model(base_of(os.path.join(path, "base")), config, adapter_name="other") if config.peft_type == "LORA" else None
            loaded = peft.PeftModel.from_pretrained(base_of(os.path.join(path, "base")), os.path.join(path, "adapter")).eval()
            report = model.load_adapter(os.path.join(path, "adapter"), adapter_name="default")
            odd += [k for k in report.missing_keys if "lora_" in k and ".default" in k] + list(report.unexpected_keys)
            odd += [str(w.message) for w in said if "missing" in str(w.message).lower() or "unexpected" in str(w.message).lower()]
        off = ((logits_of(loaded, ids) - want).abs().max() / want.abs().max()).item()
        merged, info = transformers.AutoModelForCausalLM.from_pretrained(os.path.join(path, "merged"), output_loading_info=True,
                                                                         attn_implementation="eager", experts_implementation="eager", dtype=torch.float32)
        odd += [f"{k}: {v}" for k, v in info.items() if v]
        whole = ((logits_of(merged.eval(), ids) - want).abs().max() / want.abs().max()).item()
        good = off <= LIMIT and whole <= LIMIT and not odd
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}: logits off by {off:.1e} in PEFT, merged by {whole:.1e}", "; ".join(odd))
    sys.exit(f"{failed} adapters differ" if failed else 0)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    if sys.argv[1] == "read":
        read(sys.argv[2])
    else:
        with open(sys.argv[3]) as f:
            at = [int(line) for line in f]
        for each in sys.argv[4:] or ADAPTERS:
            write(os.path.join(sys.argv[2], each), at, *ADAPTERS[each])
