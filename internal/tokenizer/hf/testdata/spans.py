"""Writes spans.json.gz beside itself: which characters of the lines in vectors.json.gz each token stands
for, by the tokenizers library, without what a post-processor trims off.

    python testdata/spans.py

Needs tokenizers 0.23.3.
"""
import gzip
import json
from pathlib import Path

from tokenizers import Tokenizer

LINES = 150  # of each tokenizer
LONGEST = 120  # characters of a line

folder = Path(__file__).parent
out = []
for v in json.loads(gzip.decompress((folder / "vectors.json.gz").read_bytes())):
    v["tokenizer"]["post_processor"] = None
    tok = Tokenizer.from_str(json.dumps(v["tokenizer"]))
    rows = []
    for line, *_ in v["rows"][:LINES]:
        if len(line) > LONGEST:
            rows.append(None)
            continue
        flat, last = [], 0
        for begin, end in tok.encode(line, add_special_tokens=False).offsets:
            flat += [begin - last, end - begin]
            last = end
        rows.append(flat)
    out.append({"name": v["name"], "rows": rows})
with open(folder / "spans.json.gz", "wb") as f:
    f.write(gzip.compress(json.dumps(out, separators=(",", ":")).encode(), 9, mtime=0))
