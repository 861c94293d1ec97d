"""The angles of rotary positions, by transformers' ROPE_INIT_FUNCTIONS: vectors for TestRotationsAgree.

    python3 vectors.py > vectors.jsonl      # with torch and transformers 5.24

prints a line of JSON for each case: the settings, the channels of a head, the positions of the model
and of a sequence, the angle of each pair from one position to the next, and the factor of cosines and
sines. All is computed in float64: torch's names of float32 are replaced, as the functions use them.
"""

import json
import math
import types

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

torch.float = torch.float32 = torch.float64
torch.Tensor.float = torch.Tensor.double

YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=2048)


def longrope(pairs, **more):
    return dict(rope_type="longrope", rope_theta=1e4, short_factor=[1 + i / 16 for i in range(pairs)], long_factor=[1 + i * i / 4 for i in range(pairs)],
                original_max_position_embeddings=64, **more)


# Settings, channels of a head, positions of the model, positions of a sequence.
CASES = [
    (dict(rope_type="default", rope_theta=1e4), 6, 128, 10),
    (dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.75), 14, 128, 10),  # 10 channels rotate
    (dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.5), 14, 128, 10),  # 7 do
    (dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.4), 13, 128, 10),  # 5 of an odd number
    (dict(rope_type="linear", rope_theta=5e5, factor=2.5), 10, 128, 10),
    (dict(rope_type="linear", rope_theta=5e5, factor=2.5, partial_rotary_factor=0.5), 22, 128, 10),
    (dict(rope_type="dynamic", rope_theta=1e4, factor=2.7), 10, 128, 100),
    (dict(rope_type="dynamic", rope_theta=1e4, factor=2.7), 10, 128, 128),
    (dict(rope_type="dynamic", rope_theta=1e4, factor=2.7), 10, 128, 129),
    (dict(rope_type="dynamic", rope_theta=1e4, factor=2.7), 10, 128, 1000),
    (dict(rope_type="dynamic", rope_theta=1e4, factor=4.0, partial_rotary_factor=0.5), 14, 128, 1000),
    (YARN, 64, 8192, 10),
    (dict(YARN, rope_theta=1e6, factor=40.0), 22, 8192, 10),
    (dict(YARN, truncate=False, factor=32.0, rope_theta=150000.0, original_max_position_embeddings=4096), 64, 131072, 10),  # GPT-OSS
    (dict(YARN, attention_factor=1.25), 16, 8192, 10),
    (dict(YARN, mscale=1.0, mscale_all_dim=0.707), 16, 8192, 10),
    (dict(YARN, mscale=0.707), 16, 8192, 10),  # has no effect alone
    (dict(YARN, beta_fast=8.0, beta_slow=2.0), 48, 8192, 10),
    (dict(YARN, beta_fast=1.0, beta_slow=1.0, truncate=False), 48, 8192, 10),  # both borders are the same
    (dict(YARN, original_max_position_embeddings=4), 16, 16, 10),  # all pairs are below the borders
    (dict(YARN, partial_rotary_factor=0.5), 36, 8192, 10),
    (dict(YARN, factor=None), 16, 6144, 10),
    (dict(YARN, factor=1.0), 16, 2048, 10),
    (longrope(5), 10, 256, 10),
    (longrope(5), 10, 256, 64),
    (longrope(5), 10, 256, 65),
    (longrope(5, factor=1.0), 10, 256, 65),
    (longrope(5, factor=16.0), 10, 256, 65),
    (longrope(5, attention_factor=1.125), 10, 256, 65),
    (longrope(5, partial_rotary_factor=0.75), 14, 256, 65),
    (dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192), 64, 131072, 10),
    (dict(rope_type="llama3", rope_theta=1e4, factor=32.0, low_freq_factor=0.5, high_freq_factor=16.0, original_max_position_embeddings=64, partial_rotary_factor=0.5), 22, 512, 10),
    (dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.25), 512, 128, 10),  # Gemma 4
    (dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=0.4, factor=2.0), 22, 128, 10),
    (dict(rope_type="proportional", rope_theta=1e6), 6, 128, 10),
]


def default(config, seq_len):
    """The angles of models without scaling, as each model's own class computes them."""
    dim = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
    return 1.0 / (config.rope_parameters["rope_theta"] ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)), 1.0


for settings, width, positions, length in CASES:
    config = types.SimpleNamespace(num_attention_heads=2, hidden_size=2 * width, head_dim=width, max_position_embeddings=positions,
                                   rope_parameters=dict(settings), standardize_rope_params=lambda: None)
    if settings["rope_type"] == "default":
        angles, factor = default(config, length)
    else:
        angles, factor = ROPE_INIT_FUNCTIONS[settings["rope_type"]](config, seq_len=length)
    assert angles.dtype == torch.float64 and math.isfinite(factor)
    case = dict(rope_parameters=settings, head_dim=width, max_position_embeddings=positions, length=length, angles=angles.tolist(), factor=factor)
    print(json.dumps(case, separators=(",", ":")))
