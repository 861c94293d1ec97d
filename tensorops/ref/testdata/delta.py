"""Writes delta.json: what transformers' own functions make of Qwen3.5's linear attention, in float64.

Run it with transformers 5.24 and torch: python tensorops/ref/testdata/delta.py
The functions convert to float32, so they are read as source and compiled with float64 in its place.
Inputs are made by `numbers`, which the test has too.
"""

import inspect
import json
import math
import pathlib
import textwrap

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5 as module

torch.set_default_dtype(torch.float64)


def in_float64(name):
    """The module's function or class with float64 for float32, without its decorators."""
    source = textwrap.dedent(inspect.getsource(getattr(module, name)))
    lines = source.splitlines()
    while lines[0].startswith("@"):
        lines.pop(0)
    scope = dict(vars(module))
    exec("\n".join(lines).replace("torch.float32", "torch.float64").replace(".float()", ".double()"), scope)
    module.__dict__[name] = scope[name]
    return scope[name]


l2norm = in_float64("l2norm")
conv = in_float64("causal_conv1d_fn")
chunk = in_float64("torch_chunk_gated_delta_rule")
recurrent = in_float64("torch_recurrent_gated_delta_rule")
Norm = in_float64("Qwen3_5RMSNormGated")


def numbers(seed, *shape):
    n = math.prod(shape)
    return torch.tensor([math.sin(seed + 1.7 * i) + 0.3 * math.cos(seed * i) for i in range(n)]).reshape(shape).requires_grad_()


def rounded(t):
    return [float(f"{v:.13g}") for v in t.flatten().tolist()]


def case(batch, positions, key_heads, value_heads, dk, dv, taps):
    keys, values = key_heads * dk, value_heads * dv
    x = {
        "x": numbers(1, batch, positions, 2 * keys + values),
        "conv": numbers(2, 2 * keys + values, taps),
        "a": numbers(3, batch, positions, value_heads),
        "b": numbers(4, batch, positions, value_heads),
        "a_log": numbers(5, value_heads),
        "dt_bias": numbers(6, value_heads),
        "z": numbers(7, batch, positions, value_heads, dv),
        "norm": numbers(8, dv),
    }
    mixed = conv(x["x"].transpose(1, 2), x["conv"], None, activation="silu").transpose(1, 2)
    q, k, v = torch.split(mixed, [keys, keys, values], dim=-1)
    q, k = (t.reshape(batch, positions, key_heads, dk) for t in (q, k))
    v = v.reshape(batch, positions, value_heads, dv)
    g = -x["a_log"].exp() * torch.nn.functional.softplus(x["a"] + x["dt_bias"])
    beta = x["b"].sigmoid()
    options = dict(g=g, beta=beta, output_final_state=True, use_qk_l2norm_in_kernel=True)
    o, state = chunk(q, k, v, **options)
    step, last = recurrent(q, k, v, **options)
    assert (o - step).abs().max() < 1e-12 and (state - last).abs().max() < 1e-12
    norm = Norm(dv, eps=1e-6)
    norm.weight = torch.nn.Parameter(x["norm"].detach())
    y = norm(o.reshape(-1, dv), x["z"].reshape(-1, dv))
    del x["norm"]
    (y * numbers(9, *y.shape).detach()).sum().backward()
    grads = {name: rounded(t.grad) for name, t in x.items()} | {"norm": rounded(norm.weight.grad)}
    return {
        "sizes": [batch, positions, key_heads, value_heads, dk, dv, taps],
        "y": rounded(y), "o": rounded(o), "state": rounded(state), "grads": grads,
    }


cases = [case(2, 9, 1, 2, 4, 3, 4), case(1, 67, 2, 2, 3, 2, 4)]
path = pathlib.Path(__file__).with_name("delta.json")
path.write_text(json.dumps(cases, separators=(",", ":")) + "\n")
