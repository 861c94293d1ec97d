"""Writes vectors.json.gz beside itself: small tokenizers, each with other parts on, and what the
tokenizers library makes of some lines.

    python testdata/vectors.py

Nothing published is in them: all are trained here. Needs tokenizers 0.23.3.
"""
import gzip
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bench" / "peers"))
import tokens  # noqa: E402

lines = [line for line in tokens.make_lines(700, seed=4) if len(line) < 300]
lines = lines[:75] + lines[-75:]
out = []
for name, tok in tokens.trained(size=600).items():
    rows = [[line] + row for line, row in zip(lines, tokens.expected(tok, lines))]
    out.append({"name": name, "tokenizer": json.loads(tok.to_str()), "rows": rows})
with open(Path(__file__).parent / "vectors.json.gz", "wb") as f:
    f.write(gzip.compress(json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode(), 9, mtime=0))
