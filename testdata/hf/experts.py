"""Experts in files: a tensor for each matrix of each expert, of which transformers 5 has one parameter for all."""

import re


def files(model_type, key, tensor):
    """The tensors of a checkpoint that have a parameter of transformers, as views of it, by name."""
    if model_type == "mixtral":
        key, names = key.replace(".mlp.", ".block_sparse_moe."), ("w1", "w3", "w2")
    else:
        names = "gate_proj", "up_proj", "down_proj"
    found = re.fullmatch(r"(.*\.experts)\.(gate_up_proj|down_proj)", key)
    if not found:
        yield key, tensor
        return
    prefix, which = found.groups()
    for e, matrix in enumerate(tensor):
        parts = zip(names[:2], matrix.chunk(2)) if which == "gate_up_proj" else [(names[2], matrix)]
        for name, part in parts:
            yield f"{prefix}.{e}.{name}.weight", part
