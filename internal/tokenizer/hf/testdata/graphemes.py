"""Writes ../graphemes.bin: how the tokenizers library puts characters together to graphemes.

    python testdata/graphemes.py > graphemes.bin

The normalizer Precompiled replaces a grapheme of up to 5 bytes as a whole, by the shortest key that it
begins with, and the characters of longer ones one by one. So keys of our own make the library say whether
two characters are in one grapheme. Flags and their combinations are told apart as far as a text of
Precompiled can depend on them. Numbers are unsigned LEB128. Needs tokenizers 0.23.3.
"""
import struct
import sys

from tokenizers import normalizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
STEP = 4096
ACUTE, GRAVE, ZWJ, KA, VIRAMA = "\u0301", "\u0302", "\u200d", "\u0915", "\u094d"
# The order is that of graphemes.go.
ANY, CONTROL, EXTEND, JOINER, SPACING, PREPEND, L, V, T, LV, LVT, PICTOGRAPH, CONSONANT = range(13)
LINKER, LINKED = 1 << 4, 1 << 5


def precompiled(keys):
    """A normalizer that replaces each key, a byte string, by a character. It is a double array of Darts: the
    children of a node have a block of 256 units of their own."""
    units, texts = [0] * 256, b""
    blocks = {b"": 0}
    leaves = {}
    for key, to in keys.items():
        leaves[key] = len(texts)
        texts += to.encode() + b"\0"
        for n in range(1, len(key) + 1):
            if key[:n] not in blocks:
                blocks[key[:n]] = len(units)
                units += [0] * 256
    where = {b"": 0}
    for part in sorted(blocks, key=len):
        if part:
            where[part] = blocks[part[:-1]] ^ part[-1] if len(part) > 1 else part[-1]
            offset = where[part] ^ blocks[part]
            assert offset < 1 << 21
            units[where[part]] = part[-1] | offset << 10 | (part in leaves) << 8
    for key, at in leaves.items():
        units[blocks[key]] = at | 1 << 31
    data = b"".join(struct.pack("<I", u) for u in units)
    return normalizers.Precompiled(struct.pack("<I", len(data)) + data + texts)


def asked(keys, text, joined):
    """The characters for which joined is true of what becomes of text(character)."""
    normalizer, found = precompiled(keys), set()
    for i in range(0, len(ALL), STEP):
        part = [c for c in ALL[i:i + STEP] if chr(c) not in "\r\n"]
        made = normalizer.normalize_str("".join(text(chr(c)) + "\n" for c in part)).split("\n")
        assert len(made) == len(part) + 1
        found.update(c for c, m in zip(part, made) if joined(m, chr(c)))
    return found


leads = {bytes([b]): "Y" for b in range(0xE0, 0xF0)}
ends = lambda m, c: m.endswith("Y" + ACUTE)
joins = asked({b"a": "X"}, lambda c: "a" + c, lambda m, c: m == "X" and c != "a") - {ord("a")}
extends = {c for c in asked({"\xae".encode(): "Y"}, lambda c: "\xa9" + c + ZWJ + "\xae" + ACUTE, ends) if c in joins}
control = asked({ACUTE.encode(): "Z"}, lambda c: c + ACUTE + GRAVE, lambda m, c: m == c + "Z") - joins
prepends = asked({b"a": "X"}, lambda c: c + "a" + ACUTE, lambda m, c: m == c + "X" + ACUTE) - joins
pictographs = asked({"\xa9".encode(): "X"}, lambda c: "\xa9" + ZWJ + c, lambda m, c: m.startswith("X" + ZWJ)) - joins
consonants = asked(leads, lambda c: c + VIRAMA + KA + ACUTE, ends) - joins - prepends
linkers = asked(leads, lambda c: KA + c + KA + ACUTE, ends) - prepends - consonants
linked = asked(leads, lambda c: KA + VIRAMA + c + KA + ACUTE, ends) - prepends - linkers - consonants
to_lv = asked(leads, lambda c: c + "\uac00" + ACUTE, ends) - prepends
to_v = asked(leads, lambda c: c + "\u1160" + ACUTE, ends) - prepends
to_t = asked(leads, lambda c: c + "\u11a8" + ACUTE, ends) - prepends

kinds = {}
for c in ALL:
    syllable = 0xAC00 <= c < 0xAC00 + 11172
    if c == 0x200D:
        k = JOINER
    elif c in extends:
        k = EXTEND
    elif c in joins:
        k = SPACING
    elif c in control or chr(c) in "\r\n":
        k = CONTROL
    elif c in prepends:
        k = PREPEND
    elif syllable:
        k = LV if (c - 0xAC00) % 28 == 0 else LVT
    elif c in to_lv:
        k = L
    elif c in to_v and c in to_t:
        k = V
    elif c in to_t:
        k = T
    elif c in consonants:
        k = CONSONANT
    elif c in pictographs:
        k = PICTOGRAPH
    else:
        k = ANY
    kinds[c] = k | LINKER * (c in linkers) | LINKED * (c in linked)


def number(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


runs = []
for c in range(0x110000):
    k = kinds.get(c, 0)
    if runs and runs[-1][0] == k:
        runs[-1][1] += 1
    else:
        runs.append([k, 1])
out = number(len(runs)) + b"".join(number(k) + number(n) for k, n in runs)
sys.stdout.buffer.write(out)
sizes = {name: len(s) for name, s in list(globals().items()) if isinstance(s, set)}
print(len(runs), "runs;", sizes, len(out), "bytes", file=sys.stderr)
