"""Encodes documents and computes their losses by transformers and torch, for TestDocumentVectors.

    python vectors.py                          writes vectors.json.gz beside itself
    python vectors.py --published DIR          writes DIR/documents.json.gz, of the chat templates in DIR/templates and of Troupe's own
                                               (internal/chat/testdata/vectors.py --published downloads them; make check-chat)

A conversation is rendered by transformers and the whole text is tokenized once. A turn of the assistant goes
from the end of the generation prompt to the end of the special token that ends it, and a token that has a
character of it is learned. The model's weights follow from a formula, which the test knows too. Needs
torch, transformers, tokenizers.
"""
import argparse, glob, gzip, json, os, re, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "testdata", "hf"))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "chat", "testdata"))
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

import forward

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = """What is a bubble? A stage that waits. Hello there, yes and no. And the other stage? It waits too, in a run of four.
The user asks, the assistant answers; a system says how. What waits? the stage waits. How many? a run of four.
An actor sends a message to a stage and the stage answers in order, one microbatch after the other, while time goes by.
Tools: {"name": "weather", "arguments": {"place": "Oslo", "days": 3}} USER: ASSISTANT: [INST] [/INST] Answer: Ünïcödé, naïve façade 日本語 😀
""" * 3
BYTE_SPECIAL = ["<|endoftext|>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>", "<|start_header_id|>",
                "<|end_header_id|>", "<|eot_id|>", "<|user|>", "<|assistant|>"]


def byte_level(special=BYTE_SPECIAL, size=420):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def sentencepiece(legacy):
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
    t.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=420, limit_alphabet=60, show_progress=False,
                                                      special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]))
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in ("<unk>", "<s>", "</s>")]
    t = Tokenizer.from_str(json.dumps(j))
    if legacy:
        t.pre_tokenizer = None
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return t


def with_post(t, single):
    t = Tokenizer.from_str(t.to_str())
    names = [n for n in single.split() if n != "$A"]
    t.post_processor = processors.TemplateProcessing(single=single, special_tokens=[(n, t.token_to_id(n)) for n in set(names)])
    return t


def config(vocab):
    return {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocab, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}


MODELS = {}


def tensors(c):
    """Of a model, as testdata/hf/forward.py names and fills them."""
    h, f, v, kv = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["hidden_size"] // c["num_attention_heads"] * c["num_key_value_heads"]
    out = [["model.embed_tokens.weight", [v, h], 0.5, 0.0]]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        out += [[p + "input_layernorm.weight", [h], 0.1, 1.0], [p + "self_attn.q_proj.weight", [h, h], 0.4, 0.0], [p + "self_attn.k_proj.weight", [kv, h], 0.4, 0.0],
                [p + "self_attn.v_proj.weight", [kv, h], 0.4, 0.0], [p + "self_attn.o_proj.weight", [h, h], 0.4, 0.0], [p + "post_attention_layernorm.weight", [h], 0.1, 1.0],
                [p + "mlp.gate_proj.weight", [f, h], 0.4, 0.0], [p + "mlp.up_proj.weight", [f, h], 0.4, 0.0], [p + "mlp.down_proj.weight", [h, f], 0.4, 0.0]]
    return out + [["model.norm.weight", [h], 0.1, 1.0], ["lm_head.weight", [v, h], 0.8, 0.0]]


def model(vocab):
    if vocab not in MODELS:
        c = config(vocab)
        m = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in c.items() if k not in ("architectures", "model_type")})).double().eval()
        state = {}
        for name, shape, scale, offset in tensors(c):
            n = 1
            for s in shape:
                n *= s
            state[name] = torch.tensor([forward.element(name, i, scale, offset) for i in range(n)], dtype=torch.float64).reshape(shape)
        m.load_state_dict(state, strict=True)
        MODELS[vocab] = m
    return MODELS[vocab]


def loss(vocab, documents):
    total, n = 0.0, 0
    with torch.no_grad():
        for d in documents:
            ids, learn = torch.tensor(d["ids"]), torch.tensor(d["learn"], dtype=torch.bool)
            if len(ids) < 2 or not learn[1:].any():
                continue
            logits = model(vocab)(ids[None, :-1]).logits[0]
            each = torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")[learn[1:]]
            total, n = total + each.sum().item(), n + len(each)
    return total / max(n, 1), n


# What is right: the rule of the docstring, on characters and the tokenizer's offsets.

def clean(message):
    return {k: v for k, v in message.items() if v is not None or k == "content"}


def overlap(offsets, spans):
    return [int(any(a < to and b > frm for frm, to in spans)) for a, b in offsets]


def without_date(compiled):
    """What a model learns from must not differ from day to day: templates get no date."""
    def compile_template(text):
        t = compiled(text)
        t.environment.globals.pop("strftime_now", None)
        t.globals.pop("strftime_now", None)
        return t
    return compile_template


chat_template_utils._compile_jinja_template = without_date(chat_template_utils._compile_jinja_template)


def render(tok, messages, tools, **more):
    return tok.apply_chat_template(messages, tools=tools, tokenize=False, **more)


def turns(tok, messages, full, special, ends, tools):
    """Characters of the assistant's turns."""
    out, at = [], 0
    for i, m in enumerate(messages):
        if m["role"] != "assistant":
            continue
        frm = None
        try:
            asked = render(tok, messages[:i], tools, add_generation_prompt=True)
            if full.startswith(asked):
                frm = len(asked)
        except Exception:
            pass
        content = m.get("content") or ""
        if not isinstance(content, str):
            content = content[-1]["text"]
        said = content.split("</think>")[-1]
        if said not in full:
            said = said.strip()
        if frm is None:
            assert said and not m.get("tool_calls"), "where the turn begins is not known"
            start = max(at, len(os.path.commonprefix([full, render(tok, messages[:i], tools)])) if i else 0)
            places = [p.start() for p in re.finditer(re.escape(said), full) if p.start() >= start]
            ended = [p for p in places if any(full[p + len(said):].lstrip().startswith(s) for s in special)]
            frm = (ended or places)[0]
        last = full.index(said, frm) + len(said)
        alone = full
        if i + 1 < len(messages):
            alone = render(tok, messages[:i + 1], tools)
        if m.get("tool_calls"):
            assert full.startswith(alone), (full, alone)
            to = max((full.rindex(s, last, len(alone)) + len(s) for s in special if s in full[last:len(alone)]), default=len(alone))
        else:
            found = [(full.index(s, last), s) for s in special if s in full[last:]]
            to = last
            if found:
                where, name = min(found, key=lambda f: (f[0], -len(f[1])))
                whole = full.startswith(alone)
                if not whole or where + len(name) <= len(alone) or name in ends and not full[last:where].strip():
                    to = where + len(name)
        if m.get("weight", 1) != 0:
            out.append((frm, to))
        at = to
    return out


def encode(tok, case, row):
    special = [t for t in tok.get_added_vocab() if tok.convert_tokens_to_ids(t) in tok.all_special_ids or t in case["special"]]
    ends = case["ends"]
    plain = case.get("special_tokens") == "text"
    before, after = case.get("before", []), case.get("after", [])

    def ids(text):
        if plain:  # the library takes no names for text that are its special tokens': they are left out
            bare = json.loads(tok.backend_tokenizer.to_str())
            bare["added_tokens"] = [a for a in bare["added_tokens"] if not a["special"]]
            bare["post_processor"] = None
            e = Tokenizer.from_str(json.dumps(bare)).encode(text, add_special_tokens=False)
            return e.ids, e.offsets
        e = tok(text, add_special_tokens=False, return_offsets_mapping=True)
        return e["input_ids"], e["offset_mapping"]

    def ended(i):
        end = after + ([case["end"]] if after[-1:] != [case["end"]] else [])
        return [] if i[-len(end):] == end else end

    if row.get("messages") is not None:
        messages = [clean(m) for m in row["messages"]]
        full = render(tok, messages, row.get("tools"))
        e = tok(full, add_special_tokens=False, return_offsets_mapping=True)
        if '{% generation' in (case["template"] or ""):
            mask = tok.apply_chat_template(messages, tokenize=True, return_assistant_tokens_mask=True, return_dict=True)
            assert mask["input_ids"] == e["input_ids"]
            return {"ids": e["input_ids"], "learn": mask["assistant_masks"]}
        return {"ids": e["input_ids"], "learn": overlap(e["offset_mapping"], turns(tok, messages, full, special, ends, row.get("tools")))}
    if row.get("prompt") is not None:
        p, c = row["prompt"], row["completion"]
        i, o = ids(p + c)
        learn = overlap(o, [(len(p), len(p + c))])
    else:
        i, o = ids(row["text"])
        learn = [1] * len(i)
    b = [] if i[:len(before)] == before else before
    e = ended(i)
    return {"ids": b + i + e, "learn": [0] * len(b) + learn + [1] * len(e)}


def run(case, tokenizer):
    t = Tokenizer.from_str(tokenizer.to_str())
    named = case.get("names", {})
    tok = PreTrainedTokenizerFast(tokenizer_object=t, clean_up_tokenization_spaces=False, **named)
    tok.chat_template = case["template"]
    case["special"] = [a["content"] for a in json.loads(t.to_str())["added_tokens"] if a["special"]]
    case["ends"] = [named["eos_token"]] if "eos_token" in named else []
    case["ends"] += [t.id_to_token(i) for i in case.get("generation_ends", [])]
    case["end"] = t.token_to_id(named["eos_token"])
    documents = [encode(tok, case, row) for row in case["rows"]]
    value, targets = loss(t.get_vocab_size(), documents)
    files = {} if case["template"] is None else {"chat_template.jinja": case["template"]}
    files["special_tokens_map.json" if case.get("map") else "tokenizer_config.json"] = json.dumps(named)
    if case.get("generation_ends"):
        files["generation_config.json"] = json.dumps({"eos_token_id": case["generation_ends"]})
    c = config(t.get_vocab_size())
    c["eos_token_id"] = case["end"]
    text = "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in case["rows"])
    return {"name": case["name"], "files": files, "config": json.dumps(c), "rows": ("\ufeff" if case.get("mark") else "") + text, "special_tokens": case.get("special_tokens", ""),
            "documents": [[d["ids"], d["learn"]] for d in documents], "loss": value, "targets": targets}


def user(text): return {"role": "user", "content": text}
def assistant(text, **more): return {"role": "assistant", "content": text, **more}


TALK = [{"messages": [user("What is a bubble?"), assistant("A stage that waits.")]},
        {"messages": [user("Hello there"), assistant("yes and no"), user("And the other stage?"), assistant("It waits too, in a run of four.")]},
        {"messages": [user("  Ünïcödé 日本語 "), assistant("naïve façade 😀\n"), user("x"), assistant("y")]}]
THOUGHT = [{"messages": [user("What waits?"), assistant("<think>\nA stage may wait.\n</think>\n\nThe stage.")]},
           {"messages": [user("What waits?"), assistant("<think>\nA stage.\n</think>\n\nThe stage."), user("How many?"), assistant("<think>\nCount.\n</think>\n\nFour.")]},
           {"messages": [user("q"), assistant("no thought")]}]
CALL = [{"type": "function", "function": {"name": "weather", "arguments": {"place": "Oslo", "days": 3}}}]
CALLS = [{"messages": [user("weather?"), assistant("", tool_calls=CALL), {"role": "tool", "content": "4 degrees"}, assistant("It is 4.")]},
         {"messages": [user("weather?"), assistant("I look.", tool_calls=CALL)]}]
CHATML = """{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
IM = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
OTHER = {"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
S = {"bos_token": "<s>", "eos_token": "</s>"}
LLAMA2 = "{% for m in messages %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ ' ' + m['content'] + ' ' + eos_token }}{% endif %}{% endfor %}"
MISTRAL = "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}{{ '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
COLON = "{% for m in messages %}{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}{% else %}{{ 'ASSISTANT: ' + m['content'] + '</s>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
GEMMA = "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}{{ '<start_of_turn>' + role + '\n' + (m.content | trim) + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
HEADERS = "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' + (m.content | trim) + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
BARE = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
BEGINS = "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
MARKED = "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\n' }}{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
PROMPTED = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
TOOLS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content }}{% for c in m.tool_calls or [] %}{{ '<tool>' + c.function.name + ' ' + (c.function.arguments | tojson) + '</tool>' }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
PARTS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
THINK = r"""{%- for m in messages -%}
{%- if m.role == 'assistant' -%}
{%- set parts = m.content.split('</think>') -%}
{%- set why = parts[0].split('<think>')[-1].strip('\n') if parts|length > 1 else '' -%}
{%- if loop.last or why -%}
{{- '<|im_start|>assistant\n<think>\n' + why + '\n</think>\n\n' + parts[-1].lstrip('\n') -}}
{%- else -%}
{{- '<|im_start|>assistant\n' + parts[-1] -}}
{%- endif -%}
{{- '<|im_end|>\n' -}}
{%- else -%}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"""
RENDERED = [{"prompt": "<|im_start|>user\nWhat is a stage?<|im_end|>\n<|im_start|>assistant\n", "completion": "An actor.<|im_end|>\n"},
            {"prompt": "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n", "completion": "a run of four<|im_end|>"}]
TEXTS = [{"text": "<|im_start|>user\nWhat is a stage?<|im_end|>\n<|im_start|>assistant\nAn actor.<|im_end|>\n"}, {"text": "One tale.<|endoftext|>Another tale."}, {"text": "plain"}]
PAIRS = [{"prompt": "Answer:", "completion": " a stage"}, {"prompt": "What is a bubble?", "completion": "A stage"}, {"prompt": "naïve ", "completion": " façade 😀 日"}]


def cases():
    byte, legacy, first = byte_level(), sentencepiece(True), sentencepiece(False)
    t = {"byte": byte, "legacy": legacy, "first": first, "legacy, <s> A </s>": with_post(legacy, "<s> $A </s>"), "first, <s> A": with_post(first, "<s> $A"),
         "byte, bos is eos": with_post(byte, "</s> $A")}
    s, e = legacy.token_to_id("<s>"), legacy.token_to_id("</s>")
    be = byte.token_to_id("</s>")
    all_cases = [
        ("byte", dict(name="chatml", template=CHATML, names=IM, rows=TALK)),
        ("byte", dict(name="chatml, another eos", template=CHATML, names=OTHER, rows=TALK)),
        ("byte", dict(name="a thought after the generation prompt", template=THINK, names=IM, rows=THOUGHT)),
        ("byte", dict(name="a thought in the generation prompt", template=PROMPTED, names=IM, rows=THOUGHT)),
        ("byte", dict(name="a space before the answer", template=COLON, names=S, rows=TALK)),
        ("legacy", dict(name="llama 2, Prepend", template=LLAMA2, names=S, rows=TALK)),
        ("first", dict(name="llama 2, Metaspace", template=LLAMA2, names=S, rows=TALK)),
        ("legacy", dict(name="mistral, Prepend", template=MISTRAL, names=S, rows=TALK)),
        ("first", dict(name="mistral, Metaspace", template=MISTRAL, names=S, rows=TALK)),
        ("first", dict(name="a space, Metaspace", template=COLON, names=S, rows=TALK)),
        ("byte", dict(name="gemma", template=GEMMA, names=S, rows=TALK, generation_ends=[byte.token_to_id("<end_of_turn>"), be])),
        ("byte", dict(name="llama 3", template=HEADERS, names=S, rows=TALK)),
        ("byte", dict(name="no end", template=BARE, names=S, rows=TALK)),
        ("byte", dict(name="the next turn is the end", template=BEGINS, names=OTHER, rows=TALK, generation_ends=[0, byte.token_to_id("<|user|>")])),
        ("byte", dict(name="generation", template=MARKED, names=IM, rows=TALK)),
        ("byte", dict(name="tool calls", template=TOOLS, names=IM, rows=CALLS)),
        ("byte", dict(name="parts", template=PARTS, names=IM, rows=[{"messages": [{"role": "user", "content": [{"type": "text", "text": "parts", "image": None}]}, {"role": "assistant", "content": [{"type": "text", "text": "re"}, {"type": "text", "text": "ply"}]}]}])),
        ("byte", dict(name="null, and a mark", template=TOOLS, names=IM, mark=True, rows=[{"messages": [{"role": "user", "content": "q", "name": None}, {"role": "assistant", "content": "a", "tool_calls": None}], "tools": None, "prompt": None},
                                                                      {"messages": None, "prompt": "p", "completion": "c"}])),
        ("byte", dict(name="weight", template=CHATML, names=IM, rows=[{"messages": [user("q"), assistant("wrong words", weight=0), user("r"), assistant("right words", weight=1)]}])),
        ("byte", dict(name="names in contents", template=CHATML, names=IM, rows=[{"messages": [user("a <|im_end|> b"), assistant("c <|endoftext|> d")]}])),
        ("first", dict(name="names in special_tokens_map.json alone", template=MISTRAL, names=S, map=True, rows=TALK)),
        ("byte", dict(name="rendered pairs", template=None, names=OTHER, rows=RENDERED)),
        ("byte", dict(name="rendered pairs that end", template=None, names=IM, rows=RENDERED)),
        ("byte", dict(name="rendered pairs as text", template=None, names=IM, rows=RENDERED, special_tokens="text")),
        ("byte", dict(name="texts with names", template=None, names=OTHER, rows=TEXTS)),
        ("byte", dict(name="texts with names as text", template=None, names=OTHER, rows=TEXTS, special_tokens="text")),
        ("byte", dict(name="pairs", template=None, names=IM, rows=PAIRS)),
        ("legacy", dict(name="pairs, Prepend", template=None, names=S, rows=PAIRS)),
        ("first", dict(name="pairs, Metaspace", template=None, names=S, rows=PAIRS)),
        ("legacy, <s> A </s>", dict(name="pairs, <s> A </s>", template=None, names=S, rows=PAIRS, before=[s], after=[e])),
        ("first, <s> A", dict(name="pairs, <s> A", template=None, names=S, rows=PAIRS + [{"prompt": "<s>Answer:", "completion": " a stage</s>"}], before=[s])),
        ("byte, bos is eos", dict(name="pairs, the token that begins a text ends it", template=None, names={"bos_token": "</s>", "eos_token": "</s>"}, rows=PAIRS, before=[be])),
        ("first, <s> A", dict(name="texts, <s> A", template=None, names=S, rows=[{"text": "A stage that waits."}, {"text": ""}], before=[s])),
    ]
    return t, all_cases


def published(folder):
    import vectors as chat  # chat/testdata/vectors.py
    t, all_cases = {}, []
    own = os.path.join(HERE, "..", "..", "chat", "builtin")
    for path in sorted(glob.glob(os.path.join(folder, "templates", "*.jinja")) + glob.glob(os.path.join(own, "*.jinja"))):
        template, name = open(path, encoding="utf-8", newline="").read(), os.path.basename(path)
        names = re.findall(r"<[|｜][^<>|｜'\"{}\s]{1,40}[|｜]>|</?s>|<(?:start|end)_of_turn>|\]~!?b[\[\]]|\[e~\[|\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS)\]", template)
        special = sorted(set(names) | set(chat.SPECIAL.values()))
        tokenizer = byte_level(special)
        tok = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **chat.SPECIAL)
        tok.chat_template = template
        rows = []
        for messages, _, tools in chat.CONVERSATIONS:
            row = {"messages": messages}
            if tools:
                row["tools"] = tools
            try:
                if any(m["role"] == "assistant" for m in messages):
                    case = dict(name=name, template=template, names=chat.SPECIAL, special=special, ends=["</s>"], end=0)
                    encode(tok, case, row)
                    rows.append(row)
            except Exception as e:
                print(name, json.dumps(messages)[:70], "left out:", type(e).__name__, str(e)[:60])
        if rows:
            t[name] = tokenizer
            all_cases.append((name, dict(name=name, template=template, names=chat.SPECIAL, rows=rows)))
    return t, all_cases


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--published", metavar="DIR")
    folder = p.parse_args().published
    tokenizers, all_cases = published(folder) if folder else cases()
    out = {"tokenizers": {n: json.loads(t.to_str()) for n, t in tokenizers.items()}, "cases": []}
    for tokenizer, case in all_cases:
        r = run(case, tokenizers[tokenizer])
        r["tokenizer"] = tokenizer
        r["tensors"] = tensors(json.loads(r["config"]))
        out["cases"].append(r)
        print(f"{r['name']}: {r['targets']} targets, loss {r['loss']:.6f}")
    path = os.path.join(folder, "documents.json.gz") if folder else os.path.join(HERE, "vectors.json.gz")
    with open(path, "wb") as f:
        f.write(gzip.compress(json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
