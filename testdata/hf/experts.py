"""Experts in files: a tensor for each matrix of each expert, of which transformers 5 has one parameter for all. GPT-OSS has one in files, too,
and its published files have it in MXFP4."""

import json
import os
import re

BLOCK = 32  # numbers with a common scale


def files(model_type, key, tensor):
    """The tensors of a checkpoint that have a parameter of transformers, as views of it, by name."""
    if model_type == "mixtral":
        key, names = key.replace(".mlp.", ".block_sparse_moe."), ("w1", "w3", "w2")
    else:
        names = "gate_proj", "up_proj", "down_proj"
    found = model_type != "gpt_oss" and re.fullmatch(r"(.*\.experts)\.(gate_up_proj|down_proj)", key)
    if not found:
        yield key, tensor
        return
    prefix, which = found.groups()
    for e, matrix in enumerate(tensor):
        parts = zip(names[:2], matrix.chunk(2)) if which == "gate_up_proj" else [(names[2], matrix)]
        for name, part in parts:
            yield f"{prefix}.{e}.{name}.weight", part


def quantize(model, seed):
    """Gives a model of GPT-OSS experts that have a form in MXFP4, with the numbers that transformers makes of it, and returns the form."""
    import torch
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    draw, tensors = torch.Generator().manual_seed(seed), {}
    for name, p in sorted(model.named_parameters()):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        count, inputs, outputs = p.shape
        blocks = torch.randint(256, (count, outputs, inputs // BLOCK, BLOCK // 2), generator=draw).to(torch.uint8)
        scales = torch.randint(120, 126, (count, outputs, inputs // BLOCK), generator=draw).to(torch.uint8)
        with torch.no_grad():
            p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
    return tensors


def write_quantized(path, model, tensors):
    """Writes a model that quantize has changed as GPT-OSS is published."""
    import safetensors.torch

    os.makedirs(path)
    config = model.config.to_dict()
    config["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["model.layers.*.self_attn", "model.layers.*.mlp.router",
                                                                                      "model.embed_tokens", "lm_head"])
    config["architectures"] = ["GptOssForCausalLM"]
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(config, f, indent=1, default=str)
    rest = {k: v.contiguous() for k, v in model.state_dict().items() if k + "_blocks" not in tensors}
    safetensors.torch.save_file({**rest, **tensors}, os.path.join(path, "model.safetensors"), metadata=dict(format="pt"))
