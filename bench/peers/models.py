"""The models of `engine bench step` in PyTorch, as its users write them."""

import torch
import torch.nn.functional as F
from torch import nn


class GPTBlock(nn.Module):
    """A decoder layer of GPT-2."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.projection = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2: learned positions, a head tied to the embedding."""

    def __init__(self, layers, hidden, heads, vocab, context):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, hidden), nn.Embedding(context, hidden)
        self.blocks = nn.ModuleList(GPTBlock(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def rotate(x, cos, sin):
    """Rotary positions: the pair (i, i + D/2) turns by an angle."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x)


class LlamaBlock(nn.Module):
    """A decoder layer of Llama."""

    def __init__(self, hidden, heads, kv_heads, ffn):
        super().__init__()
        self.width = hidden // heads
        kv = self.width * kv_heads
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q, self.k, self.v = (nn.Linear(hidden, n, bias=False) for n in (hidden, kv, kv))
        self.projection = nn.Linear(hidden, hidden, bias=False)
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        n = self.norm1(x)
        q, k, v = (y.view(b, t, -1, self.width).transpose(1, 2) for y in (self.q(n), self.k(n), self.v(n)))
        a = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + self.projection(a.transpose(1, 2).reshape(b, t, c))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    """Llama: rotary positions, grouped heads, a head of its own."""

    def __init__(self, layers, hidden, heads, kv_heads, ffn, vocab, context):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(LlamaBlock(hidden, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-5)
        self.head = nn.Linear(hidden, vocab, bias=False)
        width = hidden // heads
        angle = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(0, width, 2) / width))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, targets):
        t = ids.shape[1]
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


class Qwen3Block(nn.Module):
    """A decoder layer of Qwen3: heads wider than hidden/heads, with a norm on each head of q and k."""

    def __init__(self, hidden, heads, kv_heads, head_dim, ffn):
        super().__init__()
        self.width = head_dim
        self.norm1, self.norm2 = nn.RMSNorm(hidden, eps=1e-6), nn.RMSNorm(hidden, eps=1e-6)
        self.q, self.k, self.v = (nn.Linear(hidden, n * head_dim, bias=False) for n in (heads, kv_heads, kv_heads))
        self.q_norm, self.k_norm = nn.RMSNorm(head_dim, eps=1e-6), nn.RMSNorm(head_dim, eps=1e-6)
        self.projection = nn.Linear(heads * head_dim, hidden, bias=False)
        self.gate, self.up = nn.Linear(hidden, ffn, bias=False), nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        n = self.norm1(x)
        q, k, v = (y.view(b, t, -1, self.width) for y in (self.q(n), self.k(n), self.v(n)))
        q, k, v = self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2), v.transpose(1, 2)
        q, k = rotate(q, cos, sin).type_as(v), rotate(k, cos, sin).type_as(v)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.projection(a.transpose(1, 2).reshape(b, t, -1))
        n = self.norm2(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Qwen3(nn.Module):
    """Qwen3: a head tied to the embedding."""

    def __init__(self, layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.blocks = nn.ModuleList(Qwen3Block(hidden, heads, kv_heads, head_dim, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight
        angle = torch.outer(torch.arange(context), 1e6 ** (-torch.arange(0, head_dim, 2) / head_dim))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, ids, targets):
        t = ids.shape[1]
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


# By name: what makes the model of a context, its vocabulary, the sequences in a step.
CONTEXT = 256  # unless another is asked for
MODELS = {
    "gpt": (lambda context: GPT(6, 384, 6, 256, context), 256, 16),
    "gpt2-124m": (lambda context: GPT(12, 768, 12, 50257, context), 50257, 4),
    "llama": (lambda context: Llama(8, 512, 8, 4, 1376, 32000, context), 32000, 8),
    "qwen3": (lambda context: Qwen3(8, 512, 8, 4, 128, 1536, 32000, context), 32000, 8),
}


def build(name, context=CONTEXT):
    """Make a model with weights as GPT-2 draws them."""
    model = MODELS[name][0](context)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    return model
