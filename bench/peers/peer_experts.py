"""A side that trains transformers' Qwen3MoeForCausalLM, with one of its implementations of experts.

It reads numbers of steps and answers as `engine bench step --on-request` does.
"""

import argparse
import json

from peer_step import serve, training

# "cast" is grouped_mm with its matrices in bfloat16: under autocast, grouped_mm takes them as they are, in float32.
# "compiled" is torch.compile of the model with grouped_mm, or with cast in bfloat16.
MODES = ["eager", "batched_mm", "grouped_mm", "cast", "compiled"]


def config(sizes):
    """transformers' configuration of the sizes of experts.py."""
    from transformers import Qwen3MoeConfig

    return Qwen3MoeConfig(
        vocab_size=sizes["vocab"], hidden_size=sizes["hidden"], intermediate_size=sizes["width"], num_hidden_layers=sizes["layers"],
        num_attention_heads=sizes["heads"], num_key_value_heads=sizes["kv_heads"], head_dim=sizes["hidden"] // sizes["heads"],
        max_position_embeddings=sizes["context"], num_experts=sizes["experts"], num_experts_per_tok=sizes["chosen"],
        moe_intermediate_size=sizes["width"], norm_topk_prob=True, tie_word_embeddings=False, use_cache=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, attention_dropout=0.0)  # fmt: skip


def build(sizes, mode, torch, dtype):
    """A random model with an implementation of experts."""
    from transformers import Qwen3MoeForCausalLM
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

    class Low:
        """Experts with their matrices in bfloat16."""

        def __init__(self, experts):
            self.experts = experts
            self.gate_up_proj, self.down_proj = (w.to(torch.bfloat16) for w in (experts.gate_up_proj, experts.down_proj))

        def __getattr__(self, name):
            return getattr(self.experts, name)

    torch.manual_seed(1)
    model = Qwen3MoeForCausalLM(config(sizes)).train()
    if mode == "cast" or mode == "compiled" and dtype == "bfloat16":
        ALL_EXPERTS_FUNCTIONS["grouped_mm"] = lambda experts, *rows: grouped_mm_experts_forward(Low(experts), *rows)
    model.set_experts_implementation(mode if mode in ("eager", "batched_mm") else "grouped_mm")
    return model


def loss_function(model, torch):
    """A function of ids and targets, as models.py has them."""

    def loss(ids, targets):
        logits = model(input_ids=ids).logits
        return torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))

    return loss


def trainer(o, torch):
    sizes = json.loads(o.sizes)
    model = build(sizes, o.mode, torch, o.dtype)
    loss_of = loss_function(model, torch)
    if o.mode == "compiled":
        loss_of = torch.compile(loss_of)
    return training(o, torch, model, loss_of, sizes["vocab"], sizes["context"], sizes["sequences"])


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--sizes", required=True, help="JSON")
    p.add_argument("--mode", choices=MODES, required=True)
    p.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    p.add_argument("--threads", type=int, required=True)
    o = p.parse_args()
    o.device = "cpu"
    serve(o, trainer)


if __name__ == "__main__":
    main()
