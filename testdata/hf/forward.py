"""A forward pass of GPT-2 and Llama that shares nothing with Troupe.

It is written from the formulas of transformers' modeling_gpt2 and modeling_llama
(release 5), in plain Python and double precision, and nothing is copied from there. It
knows keys of config.json that Troupe refuses, too, with the meaning that they have in
transformers, so that a key which Troupe would ignore shows in the loss.

    python3 forward.py > vectors.json

draws small models at random, always the same ones, and prints for each the text of its
config.json, its tensors, token ids, and the loss: the mean over all tokens but the
first, in windows of the model's positions, one after the other. "odd" lists the keys
that a reader without them has to honour or refuse.

A tensor is [name, shape, scale, offset]. Its element i is
offset + scale * (hash(name, i) mod 4097 - 2048) / 2048, which float32 holds exactly.
"""

import json
import math
import random


def element(name, i, scale, offset):
    h = 2166136261
    for byte in name.encode():
        h = (h ^ byte) * 16777619 & 0xFFFFFFFF
    h = (h ^ i * 0x9E3779B1) & 0xFFFFFFFF
    h = (h ^ h >> 16) * 0x7FEB352D & 0xFFFFFFFF
    h = (h ^ h >> 15) * 0x846CA68B & 0xFFFFFFFF
    h ^= h >> 16
    return offset + scale * ((h % 4097) - 2048) / 2048


def fill(tensors):
    """The tensors as nested lists by name."""
    out = {}
    for name, shape, scale, offset in tensors:
        values = [element(name, i, scale, offset) for i in range(math.prod(shape))]
        if len(shape) == 2:
            values = [values[r * shape[1]:(r + 1) * shape[1]] for r in range(shape[0])]
        out[name] = values
    return out


# Tensors of a family for a config.json.

def gpt2_sizes(c):
    hidden = c.get("n_embd", c.get("hidden_size", 768))
    inner = c.get("n_inner")
    return {
        "hidden": hidden,
        "inner": 4 * hidden if inner is None else inner,
        "layers": c.get("n_layer", c.get("num_hidden_layers", 12)),
        "heads": c.get("n_head", c.get("num_attention_heads", 12)),
        "positions": c.get("n_positions", c.get("max_position_embeddings", 1024)),
        "vocab": c.get("vocab_size", 50257),
    }


def llama_sizes(c):
    hidden, heads = c.get("hidden_size", 4096), c.get("num_attention_heads", 32)
    kv, dim = c.get("num_key_value_heads"), c.get("head_dim")
    return {
        "hidden": hidden,
        "inner": c.get("intermediate_size", 11008),
        "layers": c.get("num_hidden_layers", 32),
        "heads": heads,
        "kv": heads if kv is None else kv,
        "dim": hidden // heads if dim is None else dim,
        "positions": c.get("max_position_embeddings", 2048),
        "vocab": c.get("vocab_size", 32000),
    }


MATRIX, BIAS, NORM, EMBEDDING = (0.5, 0), (0.25, 0), (0.25, 1), (0.5, 0)
SMALL_EMBEDDING = (0.125, 0)  # so that the norms' epsilon shows


def gpt2_tensors(c, prefix):
    s = gpt2_sizes(c)
    h, f = s["hidden"], s["inner"]
    out = [[prefix + "wte.weight", [s["vocab"], h], *EMBEDDING], [prefix + "wpe.weight", [s["positions"], h], *EMBEDDING]]
    for i in range(s["layers"]):
        at = f"{prefix}h.{i}."
        for name, rows, cols in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h), ("mlp.c_fc", h, f), ("mlp.c_proj", f, h)):
            out += [[at + name + ".weight", [rows, cols], *MATRIX], [at + name + ".bias", [cols], *BIAS]]
        for name in ("ln_1", "ln_2"):
            out += [[at + name + ".weight", [h], *NORM], [at + name + ".bias", [h], *BIAS]]
    out += [[prefix + "ln_f.weight", [h], *NORM], [prefix + "ln_f.bias", [h], *BIAS]]
    if not c.get("tie_word_embeddings", True):
        out.append(["lm_head.weight", [s["vocab"], h], *MATRIX])
    return out


def llama_tensors(c):
    s = llama_sizes(c)
    h, f, q, kv = s["hidden"], s["inner"], s["heads"] * s["dim"], s["kv"] * s["dim"]
    out = [["model.embed_tokens.weight", [s["vocab"], h], *SMALL_EMBEDDING]]
    for i in range(s["layers"]):
        at = f"model.layers.{i}."
        for name, rows, cols, bias in (
            ("self_attn.q_proj", q, h, "attention_bias"), ("self_attn.k_proj", kv, h, "attention_bias"),
            ("self_attn.v_proj", kv, h, "attention_bias"), ("self_attn.o_proj", h, q, "attention_bias"),
            ("mlp.gate_proj", f, h, "mlp_bias"), ("mlp.up_proj", f, h, "mlp_bias"), ("mlp.down_proj", h, f, "mlp_bias"),
        ):
            out.append([at + name + ".weight", [rows, cols], *MATRIX])
            if c.get(bias):
                out.append([at + name + ".bias", [rows], *BIAS])
        out += [[at + "input_layernorm.weight", [h], *NORM], [at + "post_attention_layernorm.weight", [h], *NORM]]
    out.append(["model.norm.weight", [h], *NORM])
    if not c.get("tie_word_embeddings", False):
        out.append(["lm_head.weight", [s["vocab"], h], *MATRIX])
    return out


# The layers' formulas, on lists of rows.

def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def linear(rows, w, b=None):
    """rows times w transposed: w is [out, in]."""
    return [[dot(x, wo) + (b[o] if b else 0) for o, wo in enumerate(w)] for x in rows]


def conv1d(rows, w, b):
    """rows times w: w is [in, out]."""
    return linear(rows, list(zip(*w)), b)


def layer_norm(rows, w, b, eps):
    out = []
    for x in rows:
        mean = sum(x) / len(x)
        var = sum((v - mean) ** 2 for v in x) / len(x)
        out.append([(v - mean) / math.sqrt(var + eps) * w[i] + b[i] for i, v in enumerate(x)])
    return out


def rms_norm(rows, w, eps):
    return [[v / math.sqrt(dot(x, x) / len(x) + eps) * w[i] for i, v in enumerate(x)] for x in rows]


def gelu_tanh(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


ACTIVATIONS = {
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "swish": lambda x: x / (1 + math.exp(-x)),
}


def attention(q, k, v, scale):
    """Causal attention of one head."""
    out = []
    for i, query in enumerate(q):
        scores = [scale * dot(query, key) for key in k[:i + 1]]
        top = max(scores)
        p = [math.exp(s - top) for s in scores]
        total = sum(p)
        out.append([sum(p[j] * v[j][d] for j in range(i + 1)) / total for d in range(len(v[0]))])
    return out


def head_of(rows, n, dim):
    return [x[n * dim:(n + 1) * dim] for x in rows]


def add(a, b):
    return [[x + y for x, y in zip(u, v)] for u, v in zip(a, b)]


def joined(heads):
    return [sum((head[i] for head in heads), []) for i in range(len(heads[0]))]


def gpt2_logits(c, w, prefix, tokens):
    s = gpt2_sizes(c)
    dim, eps = s["hidden"] // s["heads"], c.get("layer_norm_epsilon", 1e-5)
    act = ACTIVATIONS[c.get("activation_function", "gelu_new")]
    wte, wpe = w[prefix + "wte.weight"], w[prefix + "wpe.weight"]
    x = [[a + b for a, b in zip(wte[t], wpe[p])] for p, t in enumerate(tokens)]
    for i in range(s["layers"]):
        at = f"{prefix}h.{i}."
        n = layer_norm(x, w[at + "ln_1.weight"], w[at + "ln_1.bias"], eps)
        qkv = conv1d(n, w[at + "attn.c_attn.weight"], w[at + "attn.c_attn.bias"])
        q, k, v = (head_of(qkv, part, s["hidden"]) for part in range(3))
        scale = dim ** -0.5 if c.get("scale_attn_weights", True) else 1.0
        if c.get("scale_attn_by_inverse_layer_idx", False):
            scale /= i + 1
        o = joined([attention(head_of(q, h, dim), head_of(k, h, dim), head_of(v, h, dim), scale) for h in range(s["heads"])])
        x = add(x, conv1d(o, w[at + "attn.c_proj.weight"], w[at + "attn.c_proj.bias"]))
        n = layer_norm(x, w[at + "ln_2.weight"], w[at + "ln_2.bias"], eps)
        u = [[act(v) for v in row] for row in conv1d(n, w[at + "mlp.c_fc.weight"], w[at + "mlp.c_fc.bias"])]
        x = add(x, conv1d(u, w[at + "mlp.c_proj.weight"], w[at + "mlp.c_proj.bias"]))
    x = layer_norm(x, w[prefix + "ln_f.weight"], w[prefix + "ln_f.bias"], eps)
    return linear(x, w.get("lm_head.weight", wte))


def rope_of(c):
    """The rotary settings, which may stand in several places: rope_scaling before rope_parameters, and theta in one of them before rope_theta."""
    r = dict(c.get("rope_scaling") or c.get("rope_parameters") or {})
    r.setdefault("rope_type", r.get("type", "default"))
    r.setdefault("rope_theta", c.get("rope_theta", 10000.0))
    return r


def frequencies(c, dim):
    # partial_rotary_factor has no effect on the plain rotary embedding of Llama in
    # transformers 5; older releases fail.
    r = rope_of(c)
    freqs = [r["rope_theta"] ** (-2 * i / dim) for i in range(dim // 2)]
    if r["rope_type"] == "linear":
        return [f / r["factor"] for f in freqs]
    if r["rope_type"] == "llama3":
        old = r["original_max_position_embeddings"]
        low, high = r["low_freq_factor"], r["high_freq_factor"]
        out = []
        for f in freqs:
            wavelength = 2 * math.pi / f
            if wavelength > old / low:
                out.append(f / r["factor"])
            elif wavelength < old / high:
                out.append(f)
            else:
                smooth = (old / wavelength - low) / (high - low)
                out.append((1 - smooth) * f / r["factor"] + smooth * f)
        return out
    return freqs


def rotate(rows, freqs):
    """The pair (i, i + dim/2) of each row turns by its position times the frequency."""
    half, out = len(freqs), []
    for p, x in enumerate(rows):
        cos, sin = [math.cos(p * f) for f in freqs], [math.sin(p * f) for f in freqs]
        out.append([x[i] * cos[i] - x[i + half] * sin[i] for i in range(half)] + [x[i + half] * cos[i] + x[i] * sin[i] for i in range(half)])
    return out


def llama_logits(c, w, tokens):
    s = llama_sizes(c)
    dim, eps = s["dim"], c.get("rms_norm_eps", 1e-6)
    act, freqs = ACTIVATIONS[c.get("hidden_act", "silu")], frequencies(c, dim)
    x = [w["model.embed_tokens.weight"][t] for t in tokens]
    for i in range(s["layers"]):
        at = f"model.layers.{i}."

        def project(rows, name):
            return linear(rows, w[at + name + ".weight"], w.get(at + name + ".bias"))

        n = rms_norm(x, w[at + "input_layernorm.weight"], eps)
        q, k, v = (project(n, f"self_attn.{name}_proj") for name in "qkv")
        heads = []
        for h in range(s["heads"]):
            g = h // (s["heads"] // s["kv"])
            heads.append(attention(rotate(head_of(q, h, dim), freqs), rotate(head_of(k, g, dim), freqs), head_of(v, g, dim), dim ** -0.5))
        x = add(x, project(joined(heads), "self_attn.o_proj"))
        n = rms_norm(x, w[at + "post_attention_layernorm.weight"], eps)
        gate, up = project(n, "mlp.gate_proj"), project(n, "mlp.up_proj")
        u = [[act(a) * b for a, b in zip(g, h)] for g, h in zip(gate, up)]
        x = add(x, project(u, "mlp.down_proj"))
    x = rms_norm(x, w["model.norm.weight"], eps)
    return linear(x, w.get("lm_head.weight", w["model.embed_tokens.weight"]))


def loss_of(logits, positions, ids):
    """The mean loss of all ids but the first, in windows."""
    total = 0.0
    for at in range(0, len(ids) - 1, positions):
        tokens, targets = ids[at:at + positions], ids[at + 1:at + positions + 1]
        for row, target in zip(logits(tokens[:len(targets)]), targets):
            top = max(row)
            total += top + math.log(sum(math.exp(v - top) for v in row)) - row[target]
    return total / (len(ids) - 1)


# Random models.

class Draw:
    def __init__(self, seed):
        self.random, self.config, self.odd = random.Random(seed), {}, []

    def chance(self, p):
        return self.random.random() < p

    def put(self, keys, value):
        """Under one of several names."""
        self.config[self.random.choice(keys)] = value

    def maybe(self, key, usual, odd=(), p=0.08):
        """Absent, one of the usual values, or seldom one that Troupe may refuse."""
        if odd and self.chance(p):
            self.config[key] = self.random.choice(odd)
            self.odd.append(key)
        elif usual and self.chance(0.6):
            self.config[key] = self.random.choice(usual)


NEUTRAL = {
    "use_cache": True, "bos_token_id": None, "eos_token_id": [1, 2], "initializer_range": 0.5, "transformers_version": "4.40.0",
    "torch_dtype": "bfloat16", "dtype": None, "_name_or_path": "somewhere", "task_specific_params": {"a": {"b": 1}},
}


def draw_gpt2(d):
    c = d.config
    c["model_type"] = "gpt2"
    d.put(["n_embd", "n_embd", "hidden_size"], d.random.choice([8, 16]))
    d.put(["n_head", "n_head", "num_attention_heads"], d.random.choice([2, 4]))
    d.put(["n_layer", "n_layer", "num_hidden_layers"], d.random.choice([2, 3]))
    d.put(["n_positions", "n_positions", "max_position_embeddings"], d.random.choice([8, 16, 32]))
    c["vocab_size"] = 29
    d.maybe("architectures", [["GPT2LMHeadModel"]])
    d.maybe("n_inner", [None, 24])
    d.maybe("n_ctx", [1024])
    d.maybe("activation_function", ["gelu_new", "gelu_pytorch_tanh"], ["gelu", "relu"])
    d.maybe("layer_norm_epsilon", [1e-5, 1e-3])
    d.maybe("scale_attn_weights", [True], [False])
    d.maybe("scale_attn_by_inverse_layer_idx", [False], [True])
    d.maybe("reorder_and_upcast_attn", [True, False])
    d.maybe("tie_word_embeddings", [True, False])
    d.maybe("resid_pdrop", [0.0, 0.3])
    d.maybe("attn_pdrop", [0.0, 0.1])
    prefix = d.random.choice(["transformer.", ""])
    tensors = gpt2_tensors(c, prefix)
    if c.get("tie_word_embeddings", True) and d.chance(0.1):
        # transformers 5 takes the stored head then; older releases tie over it.
        tensors.append(["lm_head.weight", tensors[0][1], *MATRIX])
        d.odd.append("lm_head.weight")
    return tensors, lambda w: lambda tokens: gpt2_logits(c, w, prefix, tokens), gpt2_sizes(c)


def draw_llama(d):
    c = d.config
    c["model_type"] = "llama"
    c["num_attention_heads"] = 4
    c["hidden_size"] = d.random.choice([16, 32])
    c["intermediate_size"] = d.random.choice([24, 32])
    c["num_hidden_layers"] = d.random.choice([1, 2])
    c["max_position_embeddings"] = d.random.choice([8, 16, 32])
    c["vocab_size"] = 29
    usual = c["hidden_size"] // 4
    d.maybe("architectures", [["LlamaForCausalLM"]])
    d.maybe("num_key_value_heads", [None, 1, 2, 4])
    d.maybe("head_dim", [None, usual], [2 * usual])
    d.maybe("rms_norm_eps", [1e-6, 1e-5, 1e-3])
    d.maybe("hidden_act", ["silu", "swish"], ["gelu"])
    d.maybe("attention_bias", [False], [True])
    d.maybe("mlp_bias", [False], [True])
    d.maybe("tie_word_embeddings", [True, False])
    d.maybe("attention_dropout", [0.0, 0.1])
    d.maybe("pretraining_tp", [1, 2])
    theta = d.random.choice([10000.0, 500000.0, 100])
    if d.chance(0.5):
        c["rope_theta"] = theta
    scaled = [
        {"rope_type": "linear", "factor": 4.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16},
    ]
    if d.chance(0.4):
        c["rope_parameters"] = {"rope_theta": theta, "rope_type": "default"}
        if d.chance(0.3):
            c["rope_parameters"]["rope_theta"] = 3 * theta
            if "rope_theta" in c:
                d.odd.append("rope_theta")
        elif d.chance(0.4):
            c["rope_parameters"].update(d.random.choice(scaled))
            d.odd.append("rope_parameters")
    else:
        d.maybe("rope_scaling", [None, {"type": "default"}, {"rope_type": "default"}], scaled, 0.3)
    if "rope_scaling" not in d.odd and "rope_parameters" not in d.odd:
        d.maybe("partial_rotary_factor", [1.0, 1], [0.5])
    return llama_tensors(c), lambda w: lambda tokens: llama_logits(c, w, tokens), llama_sizes(c)


# Odd keys that change the loss and no tensor: nothing else tells who ignores them.
SHOWN = {"activation_function", "hidden_act", "scale_attn_weights", "scale_attn_by_inverse_layer_idx", "rope_scaling", "rope_parameters"}


def main():
    lines = []
    for seed in range(80):
        d = Draw(seed)
        tensors, logits, sizes = (draw_gpt2, draw_llama)[seed % 2](d)
        for key, value in NEUTRAL.items():
            if d.chance(0.2):
                d.config[key] = value
        ids = [d.random.randrange(sizes["vocab"]) for _ in range(25)]
        text, weights = json.dumps(d.config), fill(tensors)
        loss = loss_of(logits(weights), sizes["positions"], ids)
        for key in SHOWN.intersection(d.odd):
            value = d.config.pop(key)
            without = loss_of(logits(weights), sizes["positions"], ids)
            assert abs(without - loss) > 1e-5, f"model {seed}: without {key} the loss is the same, so that it shows nothing"
            d.config[key] = value
        lines.append(json.dumps({"config": text, "odd": d.odd, "tokens": ids, "loss": loss, "tensors": tensors}, separators=(",", ":")))
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
