"""Tiny random models of every family, by transformers: vectors for TestFamiliesAgree.

    python3 vectors.py > vectors.jsonl      # with torch and transformers 5.23

prints a line of JSON for each model: its config.json as transformers writes it, tokens and
targets, the loss (the mean over all targets), its gradient in every parameter, the logits, and
what AdamW makes of it: the losses of 20 steps, and the logits after them. Arrays are float32 in
base64. The weights are not printed: both sides make them by element, which
testdata/hf/forward.py explains. All of it is computed in float64, as far as transformers lets.

    python3 vectors.py check FOLDER

loads the models in a folder's subfolders, which TestLoadsInTransformers wrote, and compares
their logits with those in logits.json beside them.
"""

import base64
import json
import math
import os
import sys

import numpy as np
import torch
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../testdata/hf"))
from experts import files  # noqa: E402
from forward import element  # noqa: E402

VOCAB, SEQUENCES, POSITIONS, STEPS = 17, 2, 10, 20
SIZES = dict(vocab_size=VOCAB, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=16, bos_token_id=None, eos_token_id=None, attention_dropout=0.0)
LATENT = dict(SIZES, num_key_value_heads=4, kv_lora_rank=7, qk_nope_head_dim=6, qk_rope_head_dim=4, moe_intermediate_size=10, first_k_dense_replace=1,
              num_mtp_layers=0)
NOPAD = dict(pad_token_id=None)
LLAMA3 = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=12)

MODELS = {
    "gpt2": transformers.GPT2Config(vocab_size=VOCAB, n_embd=16, n_inner=20, n_layer=2, n_head=4, n_positions=POSITIONS, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                                    bos_token_id=None, eos_token_id=None),
    "llama": transformers.LlamaConfig(**SIZES),
    "llama, biases and scaling of Llama 3": transformers.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, tie_word_embeddings=True, rope_parameters=LLAMA3),
    "llama, wide heads and linear scaling": transformers.LlamaConfig(**SIZES, head_dim=6, rms_norm_eps=1e-3, rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=2.5)),
    "mistral": transformers.MistralConfig(**SIZES, sliding_window=None),
    "mistral, window and wide heads": transformers.MistralConfig(**SIZES, sliding_window=4, head_dim=6),
    "mixtral": transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": transformers.Qwen3MoeConfig(**SIZES, head_dim=6, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, norm_topk_prob=True),
    "qwen3_moe, a dense layer and weights as they are": transformers.Qwen3MoeConfig(**SIZES, num_experts=3, num_experts_per_tok=3, moe_intermediate_size=14,
                                                                                  mlp_only_layers=[0], tie_word_embeddings=True),
    "qwen2_moe": transformers.Qwen2MoeConfig(**SIZES, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=14,
                                             norm_topk_prob=True),
    "qwen2_moe, a dense layer and weights as they are": transformers.Qwen2MoeConfig(**SIZES, num_experts=3, num_experts_per_tok=3, moe_intermediate_size=14,
                                                                                  shared_expert_intermediate_size=6, mlp_only_layers=[0], tie_word_embeddings=True),
    "deepseek_v3": transformers.DeepseekV3Config(**LATENT, **NOPAD, q_lora_rank=9, n_routed_experts=6, n_group=3, topk_group=2, num_experts_per_tok=3, n_shared_experts=1,
                                                 v_head_dim=5, routed_scaling_factor=1.7),
    "deepseek_v3, as Moonlight, with biases and yarn": transformers.DeepseekV3Config(
        **LATENT, **NOPAD, q_lora_rank=None, n_routed_experts=5, n_group=1, topk_group=1, num_experts_per_tok=2, n_shared_experts=2, v_head_dim=12,
        routed_scaling_factor=1.0, norm_topk_prob=False, rope_interleave=False, attention_bias=True, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=4, mscale=0.8, mscale_all_dim=1.3)),
    "qwen2": transformers.Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen2, windows from the second layer on": transformers.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=3, max_window_layers=1),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True),
    "gpt_oss": transformers.GptOssConfig(**dict(SIZES, intermediate_size=12), head_dim=6, num_local_experts=5, num_experts_per_tok=2, sliding_window=4, swiglu_limit=0.5,
                                         rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=4, beta_fast=0.5, beta_slow=0.1,
                                                              truncate=False)),
    "gpt_oss, one expert and no biases of attention": transformers.GptOssConfig(**dict(SIZES, intermediate_size=10), head_dim=4, num_local_experts=3, num_experts_per_tok=1,
                                                                                sliding_window=3, swiglu_alpha=1.2, attention_bias=False, tie_word_embeddings=True,
                                                                                rope_parameters=dict(rope_type="default", rope_theta=100.0)),
    "smollm3, windows in layers without rotary positions": transformers.SmolLM3Config(**SIZES, **NOPAD, no_rope_layers=[1, 0], use_sliding_window=True, sliding_window=4,
                                                                                     attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "granite": transformers.GraniteConfig(**SIZES, **NOPAD, embedding_multiplier=3.0, residual_multiplier=0.4, logits_scaling=2.5, attention_multiplier=0.7,
                                          attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "olmo2": transformers.Olmo2Config(**SIZES, **NOPAD, attention_bias=True),
    "olmo3": transformers.Olmo3Config(**SIZES, **NOPAD, head_dim=6, sliding_window=4, layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=100.0), full_attention=dict(rope_type="linear", rope_theta=500.0, factor=2.5))),
    "phi3": transformers.Phi3Config(**SIZES, **NOPAD, sliding_window=4, resid_pdrop=0.0),
    "gemma2": transformers.Gemma2Config(**SIZES, **NOPAD, head_dim=6, sliding_window=4, query_pre_attn_scalar=3, attn_logit_softcapping=1.5,
                                        final_logit_softcapping=2.5, attention_bias=True),
    "gemma3": transformers.Gemma3TextConfig(**SIZES, **NOPAD, head_dim=4, sliding_window=4, query_pre_attn_scalar=3, final_logit_softcapping=2.5,
                                            layer_types=["sliding_attention", "full_attention"], rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=100.0), full_attention=dict(rope_type="linear", rope_theta=500.0, factor=2.5))),
    "qwen3_5": transformers.Qwen3_5TextConfig(**SIZES, head_dim=6, attention_bias=True, layer_types=["linear_attention", "full_attention"],
                                             linear_key_head_dim=5, linear_value_head_dim=3, linear_num_key_heads=2, linear_num_value_heads=4,
                                             rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.7)),
    "gemma4": transformers.Gemma4TextConfig(**SIZES, **NOPAD, head_dim=6, global_head_dim=8, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=4,
                                            hidden_size_per_layer_input=0, final_logit_softcapping=2.5, layer_types=["sliding_attention", "full_attention"]),
    "gemma4, inputs of each layer and shared keys": transformers.Gemma4TextConfig(
        **dict(SIZES, num_hidden_layers=4), **NOPAD, head_dim=6, global_head_dim=8, sliding_window=4, hidden_size_per_layer_input=5, vocab_size_per_layer_input=VOCAB,
        num_kv_shared_layers=2, use_double_wide_mlp=True, final_logit_softcapping=2.5, layer_types=["sliding_attention", "full_attention"] * 2),
    "qwen3, yarn": transformers.Qwen3Config(**SIZES, head_dim=8, rope_parameters=dict(rope_type="yarn", rope_theta=100.0, factor=4.0, original_max_position_embeddings=4,
                                                                                    beta_fast=0.5, beta_slow=0.1)),
    "llama, dynamic": transformers.LlamaConfig(**dict(SIZES, max_position_embeddings=POSITIONS), head_dim=6, rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, factor=2.5)),
    "phi3, longrope and half of the channels": transformers.Phi3Config(**dict(SIZES, num_attention_heads=2, num_key_value_heads=1), **NOPAD, resid_pdrop=0.0, original_max_position_embeddings=6,
                                                                       partial_rotary_factor=0.5, rope_parameters=dict(rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.5],
                                                                                                                       long_factor=[1.25, 3.0])),
    "qwen3, biases and windows": transformers.Qwen3Config(**SIZES, head_dim=6, attention_bias=True, use_sliding_window=True, sliding_window=5,
                                                         layer_types=["sliding_attention", "full_attention"]),
}


def packed(values):
    return base64.b64encode(np.asarray(values, dtype="<f4").tobytes()).decode()


def drawn(name, shape):
    """A parameter's values: norms about 1, the rest about 0."""
    scale, offset = (0.25, 1.0) if len(shape) == 1 and name.endswith(("weight", "layer_scalar")) else (0.3, 0.0)
    if name.endswith("per_layer_input_gate.weight"):  # behind a closed gate, gradients are rounding errors, of which AdamW takes the sign
        scale = 0.05
    return torch.tensor([element(name, i, scale, offset) for i in range(math.prod(shape))], dtype=torch.float64).reshape(shape)


def vector(name, config):
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).double().eval()
    with torch.no_grad():
        for key, p in [*model.named_parameters(), *((key, b) for key, b in model.named_buffers() if key.endswith(("layer_scalar", "e_score_correction_bias")))]:
            for part, of in files(config.model_type, key, p):
                of.copy_(drawn(part, of.shape))
    ids = [int(2048 * (1 + element(name, i, 1, 0))) % VOCAB for i in range(2 * SEQUENCES * POSITIONS)]
    tokens, targets = ids[:SEQUENCES * POSITIONS], ids[SEQUENCES * POSITIONS:]
    x, y = torch.tensor(tokens).reshape(SEQUENCES, POSITIONS), torch.tensor(targets)

    def logits():
        return model(input_ids=x, use_cache=False).logits.reshape(-1, VOCAB)

    def loss():
        return torch.nn.functional.cross_entropy(logits(), y)

    first = logits().detach()
    value = loss()
    value.backward()
    grads = {part: packed(g.flatten()) for key, p in model.named_parameters() for part, g in files(config.model_type, key, p.grad)}
    matrices = [p for key, p in model.named_parameters() if p.dim() > 1 and not key.endswith("_proj_bias")]
    others = [p for key, p in model.named_parameters() if p.dim() == 1 or key.endswith("_proj_bias")]
    adamw = torch.optim.AdamW([dict(params=matrices, weight_decay=0.1), dict(params=others, weight_decay=0.0)], lr=3e-3, betas=(0.9, 0.99), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        adamw.zero_grad()
        step = loss()
        step.backward()
        adamw.step()
        losses.append(round(step.item(), 8))
    return dict(name=name, config=json.loads(config.to_json_string(use_diff=False)), tokens=tokens, targets=targets, loss=value.item(),
                logits=packed(first.flatten()), grads=grads, losses=losses, after=packed(logits().detach().flatten()))


def check(folder):
    failed = 0
    names = sorted(os.listdir(folder))
    for name in names:
        path = os.path.join(folder, name)
        with open(os.path.join(path, "logits.json")) as f:
            ours = json.load(f)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(path, output_loading_info=True, attn_implementation="eager",
                                                                            experts_implementation="eager", dtype=torch.float32)
        theirs = model.eval()(input_ids=torch.tensor([ours["tokens"]]), use_cache=False).logits[0].detach().double()
        mine = torch.tensor(ours["logits"], dtype=torch.float64).reshape(theirs.shape)
        off = ((theirs - mine).abs().max() / mine.abs().max()).item()
        odd = {k: v for k, v in info.items() if v}
        good = off <= 1e-4 and not odd
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}: {type(model).__name__}, logits off by {off:.2g} of the largest", odd or "")
    if failed or not names:
        sys.exit(f"{failed} of {len(names)} models differ")


if __name__ == "__main__":
    if sys.argv[1:2] == ["check"]:
        check(sys.argv[2])
    else:
        for each, of in MODELS.items():
            print(json.dumps(vector(each, of), separators=(",", ":")))
