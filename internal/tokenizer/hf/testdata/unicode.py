"""Writes ../unicode.bin: what the tokenizers library knows about characters.

    python testdata/unicode.py > unicode.bin

Its regular expressions, its normalizers and Rust's own tables are of different versions of
Unicode, none of which need be Go's. So each property is asked of the library itself,
character by character. Numbers are unsigned LEB128. Needs tokenizers 0.23.3.
"""
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
STEP = 4096
# The order is that of unicode.go.
CATEGORIES = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
              "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"]


def removed(normalizer):
    """The characters that a normalizer removes."""
    left = set()
    for i in range(0, len(ALL), STEP):
        left.update(map(ord, normalizer.normalize_str("".join(map(chr, ALL[i:i + STEP])))))
    return set(ALL) - left


def matching(pattern):
    return removed(normalizers.Replace(Regex(pattern), ""))


def split_off(pre, before, behind, alone):
    """The characters c of which before + c + behind has a piece that alone(c) says."""
    found = set()
    for c in ALL:
        if alone(chr(c), [p for p, _ in pre.pre_tokenize_str(before + chr(c) + behind)]):
            found.add(c)
    return found


def number(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


out = bytearray()

def vanish(**on):
    """The characters of which BertNormalizer leaves nothing."""
    options = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    bert = normalizers.BertNormalizer(**{**options, **on})
    return {c for c in ALL if not bert.normalize_str(chr(c))}


# 1. The category in the low five bits; then what Rust's libraries say: a word's character, a
# number, punctuation, white space, a combining mark, and to BERT a control character, an accent.
props = {c: 0 for c in ALL}
for n, name in enumerate(CATEGORIES):
    for c in matching(r"\p{%s}" % name):
        props[c] = n
flags = [
    split_off(pre_tokenizers.Whitespace(), "a", "", lambda c, p: p == ["a" + c]),
    split_off(pre_tokenizers.Digits(), "a", "", lambda c, p: p == ["a", c]),
    split_off(pre_tokenizers.Punctuation(), "a", "", lambda c, p: p == ["a", c]),
    split_off(pre_tokenizers.WhitespaceSplit(), "a", "b", lambda c, p: p == ["a", "b"]),
    removed(normalizers.StripAccents()),
    vanish(clean_text=True),
    vanish(strip_accents=True),
]
for bit, found in enumerate(flags):
    for c in found:
        props[c] |= 1 << 5 + bit
runs = []
for c in range(0x110000):
    p = props.get(c, 0)
    if runs and runs[-1][0] == p:
        runs[-1][1] += 1
    else:
        runs.append([p, 1])
out += number(len(runs))
for p, n in runs:
    out += number(p) + number(n)

# 2. Lower case.
lower = normalizers.Lowercase()
table = {c: lower.normalize_str(chr(c)) for c in ALL if c < 0x20000}
table = {c: s for c, s in table.items() if s != chr(c)}


def mappings(table):
    data, last = bytearray(number(len(table))), 0
    for c in sorted(table):
        data += number(c - last) + number(len(table[c]))
        for x in table[c]:
            data += number(ord(x))
        last = c
    return data


out += mappings(table)

# 3. Decompositions, canonical and by compatibility, of all but Hangul's syllables.
nfd, nfkd, nfc = normalizers.NFD(), normalizers.NFKD(), normalizers.NFC()
hangul = range(0xAC00, 0xAC00 + 11172)
canonical = {c: s for c in ALL if c not in hangul and (s := nfd.normalize_str(chr(c))) != chr(c)}
compatible = {c: s for c in ALL if c not in hangul and (s := nfkd.normalize_str(chr(c))) != chr(c) and s != canonical.get(c)}
out += mappings(canonical) + mappings(compatible)

# 4. Combining classes, by how marks of known classes change places with a mark. 0x334 has class
# 1, 0x345 240.
swaps = lambda a, b: nfd.normalize_str("a" + a + b) == "a" + b + a
known = {1: chr(0x334)}
for c in ALL:
    if swaps(chr(c), known[1]):
        known.setdefault(unicodedata.combining(chr(c)), chr(c))
assert 0 not in known
order = sorted(known)
assert all(swaps(known[b], known[a]) for a, b in zip(order, order[1:]))
classes = {}
for c in ALL:
    if c in canonical or not (unicodedata.combining(chr(c)) or unicodedata.category(chr(c)) in ("Mn", "Mc", "Me", "Cn")):
        continue
    m = chr(c)
    if m in known.values():
        classes[c] = unicodedata.combining(m)
        continue
    below = [k for k in order if swaps(m, known[k])]  # m's class is above these
    above = [k for k in order if swaps(known[k], m)]  # and below these
    if not below and not above:
        continue
    (k,) = [k for k in order if k not in below and k not in above]
    classes[c] = k
out += number(len(classes))
last = 0
for c in sorted(classes):
    out += number(c - last) + number(classes[c])
    last = c

# 5. What composes: the pairs whose composition the library gives back.
pairs = {}
for c in canonical:
    if nfc.normalize_str(chr(c)) != chr(c):
        continue
    s = canonical[c]
    # The decomposition is the full one: the pair is its last mark behind what the rest composes to.
    for i in range(len(s) - 1, 0, -1):
        head = nfc.normalize_str(s[:i] + s[i + 1:])
        if len(head) == 1 and nfc.normalize_str(head + s[i]) == chr(c) and len(head + s[i]) == 2:
            if nfd.normalize_str(head + s[i]) == s:
                pairs[(ord(head), ord(s[i]))] = c
                break
out += number(len(pairs))
for (a, b), c in sorted(pairs.items()):
    out += number(a) + number(b) + number(c)

sys.stdout.buffer.write(out)
print(len(runs), "runs,", len(table), "lower,", len(canonical), len(compatible), "decompositions,", len(classes), "classes,",
      len(pairs), "pairs;", len(out), "bytes", file=sys.stderr)
