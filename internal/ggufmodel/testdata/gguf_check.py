"""Compare Troupe's GGUF files with the public gguf package and, where they are there, with llama.cpp.

  gguf_check.py models DIR          write small random models of transformers, each with a tokenizer, into folders
                                    of DIR; and for some a file by the gguf package, NAME-public.gguf
  gguf_check.py check DIR           read DIR/NAME.TYPE.gguf, which Troupe wrote from DIR/NAME, and compare tensors and keys
  gguf_check.py bits DIR            compare DIR/NAME.back, which Troupe wrote from its own F32 file, with DIR/NAME
  gguf_check.py perplexity DIR      print llama.cpp's losses and ids for the texts of DIR/text.txt; needs LLAMA_CPP_LIB, a folder with libllama.so,
                                    and LLAMA_CPP_PYTHON, the folder of the Python package llama_cpp

  gguf_check.py widen FILE          write a published file of other types as FILE.f32.gguf
  gguf_check.py loss FILE TEXT      print llama.cpp's loss of a text file
  gguf_check.py convert DIR         let llama.cpp's converter write files, with which check compares; needs LLAMA_CPP, the folder of its sources
"""

import json
import os
import pathlib
import sys

import numpy as np

TEXT = "The quick brown fox jumps over the lazy dog, and it's 12345 o'clock; we'll see. " * 3 + \
    "Größe, naïve café, 東京の天気は晴れ。 def f(x):\n    return x + 1\n\n\tтекст на русском 🙂 don't STOP!  \n"


def byte_level(pattern=None, digits=False, ignore=False, nfc=False, bos=False):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE(ignore_merges=ignore))
    steps = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if pattern:
        steps += [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    else:
        steps += [pre_tokenizers.ByteLevel(add_prefix_space=False)]
    tok.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    if nfc:
        tok.normalizer = normalizers.NFC()
    tok.decoder = decoders.ByteLevel()
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tok.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False,
                                                        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    if bos:
        tok.post_processor = processors.TemplateProcessing(single="<|endoftext|> $A", pair="<|endoftext|> $A <|endoftext|> $B",
                                                           special_tokens=[("<|endoftext|>", 0)])
    return tok, {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}


def sentencepiece(prefix=True):
    from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers
    tok = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    parts = [normalizers.Replace(" ", "▁")]
    if prefix:
        parts = [normalizers.Prepend("▁")] + parts
    tok.normalizer = normalizers.Sequence(parts)
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] +
                                    ([decoders.Strip(" ", 1, 0)] if prefix else []))
    from collections import Counter
    words = [w for w in tok.normalizer.normalize_str(TEXT).replace("▁", " ▁").split(" ") if w]
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    train = Tokenizer(models.BPE())
    from tokenizers import pre_tokenizers
    train.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    train.train_from_iterator([" ".join(words)], trainer)
    model = json.loads(train.to_str())["model"]
    # All pairs whose text is a token are merges, in the order of the tokens' scores, as in converted SentencePiece files.
    vocab, scores = model["vocab"], {}
    for rank, pair in enumerate(model["merges"]):
        scores.setdefault("".join(pair), -rank)
    merges = sorted(((a[:i], a[i:]) for a in scores for i in range(1, len(a)) if a[:i] in vocab and a[i:] in vocab),
                    key=lambda m: (-scores["".join(m)], vocab[m[0]], vocab[m[1]]))
    whole = json.loads(tok.to_str())
    whole["model"].update(vocab=vocab, merges=[list(m) for m in merges])
    whole["added_tokens"] = [dict(id=i, content=c, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                             for i, c in enumerate(special[:3])]
    tok = Tokenizer.from_str(json.dumps(whole))
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tok, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
QWEN35 = QWEN.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def families():
    """Yields name, class of transformers' configuration, its arguments, tokenizer, its special tokens."""
    gpt2, smol = byte_level(), byte_level(digits=True)
    llama3, qwen, dbrx = byte_level(LLAMA3, ignore=True, bos=True), byte_level(QWEN, nfc=True), byte_level(LLAMA3)
    qwen35 = byte_level(QWEN35, nfc=True)
    spm, gemma = sentencepiece(), sentencepiece(False)
    small = dict(hidden_size=96, intermediate_size=160, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
                 max_position_embeddings=128)
    deep = dict(small, num_hidden_layers=8)
    llama3_rope = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
    yield "gpt2", "GPT2Config", dict(n_embd=96, n_layer=3, n_head=6, n_positions=128, n_inner=200), gpt2
    yield "gpt2-untied", "GPT2Config", dict(n_embd=64, n_layer=2, n_head=4, n_positions=64, tie_word_embeddings=False), gpt2
    yield "llama", "LlamaConfig", dict(small, rope_theta=500000.0, rope_scaling=llama3_rope), llama3
    yield "llama-spm", "LlamaConfig", dict(small, attention_bias=True, mlp_bias=True, rope_scaling=dict(rope_type="linear", factor=2.0)), spm
    yield "llama-smol", "LlamaConfig", dict(small, hidden_size=72, num_key_value_heads=3, tie_word_embeddings=True), smol
    yield "mistral", "MistralConfig", dict(small, head_dim=24, sliding_window=None), dbrx
    yield "qwen2", "Qwen2Config", dict(small, rope_theta=1e6, tie_word_embeddings=True), qwen
    yield "qwen2-yarn", "Qwen2Config", dict(small, rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)), qwen
    yield "qwen3", "Qwen3Config", dict(small, head_dim=32, rope_theta=1e6), qwen
    delta = dict(linear_key_head_dim=16, linear_value_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6)
    yield "qwen35", "Qwen3_5TextConfig", dict(small, **delta, head_dim=32, tie_word_embeddings=True), qwen35
    yield "qwen35-full", "Qwen3_5TextConfig", dict(
        small, **dict(delta, linear_num_value_heads=2), head_dim=32, layer_types=["full_attention", "linear_attention"] * 2,
        rope_parameters=dict(rope_type="default", rope_theta=1e6, partial_rotary_factor=0.5, mrope_section=[3, 3, 2], mrope_interleaved=True)), qwen35
    yield "smollm3", "SmolLM3Config", dict(deep, rope_theta=2e6, use_sliding_window=False), llama3
    yield "granite", "GraniteConfig", dict(small, attention_multiplier=0.1, embedding_multiplier=3.0, residual_multiplier=0.5,
                                           logits_scaling=2.0, tie_word_embeddings=True), smol
    yield "olmo2", "Olmo2Config", dict(small, rms_norm_eps=1e-6), dbrx
    yield "olmo3", "Olmo3Config", dict(deep, sliding_window=16, rms_norm_eps=1e-6), dbrx
    yield "phi3", "Phi3Config", dict(small, pad_token_id=0, sliding_window=None), spm
    yield "phi3-long", "Phi3Config", dict(
        small, pad_token_id=0, original_max_position_embeddings=64, sliding_window=None,
        rope_scaling=dict(rope_type="longrope", long_factor=[1.0 + i for i in range(8)], short_factor=[1.0 + i / 8 for i in range(8)])), spm
    yield "gemma2", "Gemma2Config", dict(small, head_dim=32, query_pre_attn_scalar=32, sliding_window=16), gemma
    yield "gemma3", "Gemma3TextConfig", dict(deep, head_dim=32, query_pre_attn_scalar=32, sliding_window=16), gemma
    four = dict(deep, head_dim=32, global_head_dim=48, sliding_window=16, hidden_size_per_layer_input=0)
    yield "gemma4", "Gemma4TextConfig", dict(four, final_logit_softcapping=30.0), gemma
    yield "gemma4-keys", "Gemma4TextConfig", dict(
        four, num_global_key_value_heads=1, attention_k_eq_v=True, layer_types=["sliding_attention", "full_attention"] * 4), gemma


def models(folder):
    import torch
    import transformers
    for i, (name, config, args, (tok, special)) in enumerate(families()):
        at = folder / name
        at.mkdir()
        vocab = tok.get_vocab_size() + 5  # some ids have no token
        ids = {k.replace("_token", "_token_id"): tok.token_to_id(v) for k, v in special.items()}
        c = getattr(transformers, config)(**{**args, "vocab_size": vocab, **ids})
        torch.manual_seed(i)
        m = transformers.AutoModelForCausalLM.from_config(c, dtype=torch.float32)
        with torch.no_grad():
            for p in m.parameters():  # norms and biases must differ from their initial values
                p.add_(torch.randn_like(p) * (0.1 if p.ndim == 1 else 0.02))
        m.save_pretrained(at)
        if config == "GPT2Config":  # as in published files; the converter needs it
            saved = json.loads((at / "config.json").read_text())
            (at / "config.json").write_text(json.dumps({**saved, "n_ctx": c.n_positions}))
        tok.save(str(at / "tokenizer.json"))
        (at / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
        (at / "chat_template.jinja").write_text(TEMPLATE)
        if name in ("llama", "qwen3"):
            public(m, at, folder / (name + "-public.gguf"))
    (folder / "text.txt").write_text(TEXT)


def public(m, at, to):
    """Writes a file that Troupe reads, of Q8_0, F16 and BF16, by the gguf package alone."""
    import gguf
    arch = m.config.model_type
    w = gguf.GGUFWriter(to, arch)
    c = m.config
    w.add_block_count(c.num_hidden_layers), w.add_context_length(c.max_position_embeddings), w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size), w.add_head_count(c.num_attention_heads), w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps), w.add_rope_freq_base(500000.0 if arch == "llama" else 1e6)
    if arch == "qwen3":
        w.add_key_length(c.head_dim), w.add_value_length(c.head_dim)
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, arch.upper()), c.num_hidden_layers)
    types = [gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F32]
    for i, (name, t) in enumerate(m.state_dict().items()):
        data = t.numpy()
        if arch == "llama":
            data = permuted(name, data, c)
        kind = types[i % 4] if data.ndim > 1 and data.shape[-1] % 32 == 0 else types[3]
        new = names.get_name(name, try_suffixes=(".weight", ".bias"))
        w.add_tensor(new, gguf.quants.quantize(data, kind), raw_dtype=kind)
    tokens = json.loads((at / "tokenizer.json").read_text())["model"]["vocab"]
    by_id = {v: k for k, v in tokens.items()}
    w.add_tokenizer_model("gpt2"), w.add_tokenizer_pre("llama-bpe" if arch == "llama" else "qwen2")
    w.add_token_list([by_id.get(i, "[PAD%d]" % i) for i in range(c.vocab_size)])
    w.add_token_types([3 if i < 3 else 1 if i in by_id else 5 for i in range(c.vocab_size)])
    gguf.SpecialVocab(at, load_merges=True).add_to_gguf(w)
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def permuted(name, data, c):
    heads = c.num_attention_heads if "q_proj" in name else c.num_key_value_heads if "k_proj" in name else 0
    if not heads:
        return data
    return data.reshape(heads, 2, data.shape[0] // heads // 2, *data.shape[1:]).swapaxes(1, 2).reshape(data.shape)


def value(field):
    return field.contents()


def read(path):
    import gguf
    r = gguf.GGUFReader(path)
    keys = {k: value(f) for k, f in r.fields.items() if not k.startswith("GGUF.")}
    return keys, {t.name: t for t in r.tensors}


def convert(folder):
    """Lets llama.cpp's converter write DIR/NAME.TYPE.converted.gguf. The name of the pre-tokenizer is that of Troupe's file, since the converter
    knows those of published models only."""
    sys.path[:0] = [os.environ["LLAMA_CPP"], os.environ["LLAMA_CPP"] + "/gguf-py"]
    import logging
    logging.disable(logging.WARNING)
    import conversion
    import gguf
    import torch
    from conversion.base import ModelBase, ModelType, get_model_architecture
    types = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16,
             "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0}
    for name, *_ in families():
        at = folder / name
        hparams = ModelBase.load_hparams(at, False)
        cls = conversion.get_model_class(get_model_architecture(hparams, ModelType.TEXT))
        for kind, ftype in types.items():
            pre = read(folder / f"{name}.{kind}.gguf")[0].get("tokenizer.ggml.pre")
            to = folder / f"{name}.{kind}.converted.gguf"
            (at / "tokenizer.model").touch()  # Gemma 3's has a token for each row; without it the converter cuts rows off
            with torch.inference_mode():
                cls.no_mtp = True  # Qwen3.5's converter looks for layers that predict further tokens
                m = cls(at, ftype, to, eager=True)
                m.get_vocab_base_pre = lambda tok: pre
                if pre in ("default", None):  # without tokenizer.model the converter cannot read SentencePiece's scores
                    m.set_vocab = lambda: None
                    m._create_vocab_sentencepiece = lambda: ([b""] * hparams["vocab_size"], None, None)
                else:
                    m.set_vocab = m._set_vocab_gpt2
                m.write()
            (at / "tokenizer.model").unlink()


def check(folder):
    import gguf
    import torch
    import transformers
    failed = 0
    for name, *_ in families():
        at = folder / name
        m = transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32)
        state = {k: v.numpy() for k, v in m.state_dict().items()}
        notes = []
        for kind in ("f32", "f16", "bf16", "q8_0"):
            path = folder / f"{name}.{kind}.gguf"
            if not path.exists():
                notes.append(f"{kind}: missing")
                continue
            keys, tensors = read(path)
            differing = own(keys["general.architecture"], m, state, tensors, kind)
            other = folder / f"{name}.{kind}.converted.gguf"
            if other.exists():
                differing += compare(keys, tensors, *read(other))
            if differing:
                failed += 1
                notes.append(f"{kind}: " + "; ".join(differing[:6]))
        print(f"{name}: {'equal' + (' to those of the converter' if other.exists() else '') if not notes else ' | '.join(notes)}", flush=True)
    sys.exit(int(failed > 0))


def own(arch, m, state, tensors, kind):
    """Compares dequantized tensors with a float64 reference of the same rounding."""
    import gguf
    differing = []
    kinds = getattr(gguf.MODEL_ARCH, arch.upper())
    names = gguf.get_tensor_name_map(kinds, 100)
    seen = set()
    tied = m.config.tie_word_embeddings
    for hf, data in state.items():
        if hf == "lm_head.weight" and (tied or arch == "gemma2"):
            continue
        new = names.get_name(hf.replace(".dt_bias", ".dt_proj.bias").replace("layer_scalar", "layer_scalar.weight"), try_suffixes=(".weight", ".bias"))
        if arch == "gpt2" and ("c_" in hf) and hf.endswith(".weight"):
            data = data.T
        if arch in ("llama", "smollm3", "granite"):
            data = permuted(hf, data, m.config)
        if (arch in ("gemma2", "gemma3") or arch == "qwen35" and "linear_attn" not in hf) and hf.endswith("norm.weight"):
            data = data + np.float32(1)
        if "linear_attn." in hf:
            data = tiled(hf, data, m.config)
        t = tensors.get(new)
        if t is None:
            differing.append(f"{new} is missing")
            continue
        seen.add(new)
        got = gguf.quants.dequantize(t.data, t.tensor_type)
        want, name = rounded(np.ascontiguousarray(data), new, kind)
        if t.tensor_type.name != name:
            differing.append(f"{new} is {t.tensor_type.name}, not {name}")
        if got.shape != want.shape or not (np.array_equal(got, want) or new.endswith("ssm_a") and np.allclose(got, want, rtol=1e-6)):
            differing.append(f"{new} differs")
    extra = set(tensors) - seen - {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}
    if arch == "olmo2" and tied:
        extra -= {"output.weight"}
    return differing + [f"{n} is new" for n in sorted(extra)]


def tiled(name, data, c):
    """A tensor of the gated delta rule, with heads of values as llama.cpp has them."""
    keys, each = c.linear_num_key_heads, c.linear_num_value_heads // c.linear_num_key_heads
    if name.endswith("linear_attn.norm.weight"):
        return data
    if name.endswith("A_log"):
        data = -np.exp(data)
    data = data.reshape(-1, c.linear_conv_kernel_dim) if "conv1d" in name else data
    columns = "out_proj" in name
    data = data.T if columns else data
    at = 2 * keys * c.linear_key_head_dim if "qkv" in name or "conv1d" in name else 0
    heads = data[at:].reshape(keys, each, -1, *data.shape[1:]).swapaxes(0, 1).reshape(data[at:].shape)
    data = np.concatenate([data[:at], heads])
    return data.T if columns else data


def rounded(data, name, kind):
    import torch
    if data.ndim < 2 or name.endswith(("_norm.weight", ".bias", "ssm_conv1d.weight")) or name == "position_embd.weight" or kind == "f32":
        return data, "F32"
    if kind == "q8_0" and data.shape[-1] % 32:
        kind = "f16"
    if kind == "f16":
        return data.astype(np.float16).astype(np.float32), "F16"
    if kind == "bf16":
        return torch.from_numpy(data).bfloat16().float().numpy(), "BF16"
    blocks = data.reshape(-1, 32).astype(np.float64)
    d = (np.abs(blocks).max(axis=1, keepdims=True).astype(np.float32) / np.float32(127)).astype(np.float32)
    inverse = np.where(d == 0, 0, np.float32(1) / d).astype(np.float32)
    product = (blocks * inverse.astype(np.float64)).astype(np.float32).astype(np.float64)
    q = np.sign(product) * np.floor(np.abs(product) + 0.5)
    return (q * d.astype(np.float16).astype(np.float64)).astype(np.float32).reshape(data.shape), "Q8_0"


def compare(keys, tensors, other_keys, other_tensors):
    """Compares with a file of the converter."""
    differing = []
    for k in sorted(set(keys) | set(other_keys)):
        if k == "gpt2.feed_forward_length":  # the converter assumes four times the width
            continue
        # The converter takes these from a model card or a file that is not there, or writes nothing where llama.cpp has a default.
        skip = k in ("general.name", "general.finetune", "general.basename", "general.version", "general.quantized_by") or \
            k in ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix") and k not in other_keys
        if skip or k == "tokenizer.ggml.add_sep_token" and other_keys[k] is False or k.startswith("tokenizer.") and keys.get("tokenizer.ggml.model") in ("llama", "gemma4") or k.startswith("general.sampling"):
            continue
        a, b = keys.get(k), other_keys.get(k)
        if a != b:
            differing.append(f"{k} is {str(a)[:60]}, not {str(b)[:60]}")
    for n in sorted(set(tensors) | set(other_tensors)):
        a, b = tensors.get(n), other_tensors.get(n)
        if a is None or b is None:
            differing.append(f"{n} is in one file only")
        elif a.tensor_type != b.tensor_type or list(a.shape) != list(b.shape) or not np.array_equal(a.data, b.data):
            if (n.startswith("rope_f") or n.endswith("ssm_a")) and np.allclose(a.data, b.data, rtol=1e-6):
                continue
            differing.append(f"{n} differs from the converter's")
    return differing


def library():
    """Loads the bindings of llama_cpp alone, without the packages that the rest of it needs."""
    import importlib
    import types
    os.environ["LLAMA_CPP_LIB_PATH"] = os.environ["LLAMA_CPP_LIB"]
    package = types.ModuleType("llama_cpp")
    package.__path__ = [os.environ["LLAMA_CPP_PYTHON"] + "/llama_cpp"]
    sys.modules["llama_cpp"] = package
    return importlib.import_module("llama_cpp.llama_cpp")


def llama_cpp(path, text, special=True):
    """Returns llama.cpp's ids of a text, and the mean loss of each of its tokens after the first."""
    import ctypes
    c = library()
    if not hasattr(llama_cpp, "quiet"):
        llama_cpp.quiet = c.llama_log_callback(lambda level, message, data: None)
        c.llama_log_set(llama_cpp.quiet, None)
        c.llama_backend_init()
    params = c.llama_model_default_params()
    params.use_mmap = True
    model = c.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise SystemExit(f"{path}: llama.cpp cannot load it")
    vocab = c.llama_model_get_vocab(model)
    raw = text.encode()
    ids = (c.llama_token * (len(raw) + 16))()
    n = c.llama_tokenize(vocab, raw, len(raw), ids, len(ids), special, False)
    ids = list(ids[:n])
    options = c.llama_context_default_params()
    context = min(c.llama_model_n_ctx_train(model), 512)
    options.n_ctx, options.n_batch, options.n_ubatch, options.n_threads, options.n_threads_batch = context, context, context, 2, 2
    options.type_k = options.type_v = 0  # caches in F32
    options.flash_attn_type = 0
    ctx = c.llama_init_from_model(model, options)
    size, total, count = c.llama_vocab_n_tokens(vocab), 0.0, 0
    for at in range(0, len(ids) - 1, context):
        part = ids[at:at + context + 1]
        c.llama_memory_clear(c.llama_get_memory(ctx), True)
        batch = c.llama_batch_init(context, 0, 1)
        batch.n_tokens = len(part) - 1
        for i in range(batch.n_tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = part[i], i, 1, 0, 1
        assert c.llama_decode(ctx, batch) == 0
        for i in range(batch.n_tokens):
            logits = np.ctypeslib.as_array(c.llama_get_logits_ith(ctx, i), shape=(size,)).astype(np.float64)
            total += np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[part[i + 1]]
            count += 1
        c.llama_batch_free(batch)
    c.llama_free(ctx), c.llama_model_free(model)
    return ids, total / max(1, count)


def bits(folder):
    """Loads what Troupe has read from its own F32 files in transformers, and compares logits and ids with the original."""
    import torch
    import transformers
    failed = 0
    for name, *_ in families():
        back = folder / (name + ".back")
        if not back.exists():
            print(f"{name}: Troupe did not read it")
            failed += 1
            continue
        a, b = (transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32).eval() for at in (folder / name, back))
        x, y = a.state_dict(), b.state_dict()
        tok, tok_b = (transformers.PreTrainedTokenizerFast(tokenizer_file=str(at / "tokenizer.json")) for at in (folder / name, back))
        ids = tok(TEXT)["input_ids"]
        with torch.no_grad():
            inputs = torch.tensor([ids[:60]])
            p, q = a(inputs).logits, b(inputs).logits
        # The norms of Gemma and Qwen3.5 are stored with one added, and exp(A_log) in place of A_log, which rounds them.
        changed = ("norm", "A_log") if name.startswith(("gemma2", "gemma3", "qwen35")) else ()
        exact = all(k in y and torch.equal(v, y[k]) for k, v in x.items() if not any(part in k for part in changed))
        error = ((p - q).abs().max() / p.abs().max()).item()
        good = exact and error < 1e-6 and ids == tok_b(TEXT)["input_ids"] and set(x) == set(y)
        failed += not good
        print(f"{name}: weights {'equal' if exact else 'differ'}, logits {error:.1e} of the largest apart, "
              f"ids {'equal' if ids == tok_b(TEXT)['input_ids'] else 'differ'}", flush=True)
    sys.exit(int(failed > 0))


def perplexity(folder):
    """Compares llama.cpp's ids and losses with those of transformers."""
    import torch
    import transformers
    failed = 0
    for name, *_ in families():
        m = transformers.AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32).eval()
        tok = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / name / "tokenizer.json"))
        want = tok(TEXT)["input_ids"]
        line = []
        for kind in ("f32", "q8_0"):
            ids, loss = llama_cpp(folder / f"{name}.{kind}.gguf", TEXT)
            if kind == "f32":
                line.append("ids " + ("equal" if ids == want else f"differ: {ids[:12]} {want[:12]}"))
                failed += ids != want
                context = min(m.config.max_position_embeddings, 512)
                total = 0.0
                with torch.no_grad():
                    for at in range(0, len(want) - 1, context):
                        part = torch.tensor(want[at:at + context + 1])
                        total += torch.nn.functional.cross_entropy(m(part[None, :-1]).logits[0].double(), part[1:], reduction="sum").item()
                reference = total / (len(want) - 1)
                failed += abs(loss - reference) > 1e-3 * reference
            line.append(f"{kind} {loss:.6f}")
        print(f"{name}: transformers {reference:.6f}, llama.cpp {', '.join(line)}", flush=True)
    sys.exit(int(failed > 0))


def widen(path):
    """Writes a published file of other types in F32, by the gguf package alone."""
    import gguf
    r = gguf.GGUFReader(path)
    w = gguf.GGUFWriter(path.with_suffix(".f32.gguf"), r.fields["general.architecture"].contents())
    for key, field in r.fields.items():
        if not key.startswith("GGUF.") and key not in ("general.architecture", "general.file_type"):
            kind = field.types[0]
            w.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    w.add_file_type(0)
    for t in r.tensors:
        w.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def loss(path):
    """Prints llama.cpp's loss of a text, in windows of 512 tokens."""
    ids, mean = llama_cpp(path, pathlib.Path(sys.argv[3]).read_text(), False)
    print(f"{path}: {len(ids) - 1} tokens, loss {mean:.9f}, perplexity {np.exp(mean):.6f}")


if __name__ == "__main__":
    globals()[sys.argv[1]](pathlib.Path(sys.argv[2]))
