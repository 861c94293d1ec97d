"""Writes vectors.json.gz beside itself: small tokenizers, each with other parts on, and what the
tokenizers library makes of some lines.

    python testdata/vectors.py

Nothing published is in them: all are trained here. Needs tokenizers 0.23.3.
"""
import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "bench" / "peers"))
import tokens  # noqa: E402

lines = [line for line in tokens.make_lines(700, seed=4) if len(line) < 300]
lines = lines[:75] + lines[-75:]
out = []
for n, (name, tok) in enumerate(tokens.trained(size=600).items()):
    some = lines if n < 11 else lines[:40] + lines[-40:]
    rows = [[line] + row for line, row in zip(some, tokens.expected(tok, some))]
    out.append({"name": name, "tokenizer": json.loads(tok.to_str()), "rows": rows})
with open(Path(__file__).parent / "vectors.json.gz", "wb") as f:
    f.write(gzip.compress(json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0))
