"""Writes sampling.json: what transformers' generate leaves of logits to draw from.

Needs transformers and torch. The order is that of transformers' GenerationMixin: repetition penalty,
temperature, top-k, top-p, min-p.
"""
import json, os, random

import torch
from transformers import (MinPLogitsWarper, RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

random.seed(1)
rows = []
for i in range(40):
    logits = [round(random.gauss(0, 3), 3) for _ in range(24)]
    o = {"logits": logits, "seen": random.sample(range(24), 6), "repetition_penalty": random.choice([0, 0.8, 1.3]), "temperature": random.choice([0.3, 0.8, 1.0, 1.7]),
         "top_k": random.choice([0, 0, 1, 5, 30]), "top_p": random.choice([0, 0, 0.05, 0.5, 0.9, 1]), "min_p": random.choice([0, 0, 0.02, 0.3])}
    x, ids = torch.tensor([logits], dtype=torch.float64), torch.tensor([o["seen"]])
    if o["repetition_penalty"]:
        x = RepetitionPenaltyLogitsProcessor(o["repetition_penalty"])(ids, x)
    x = TemperatureLogitsWarper(o["temperature"])(ids, x)
    if o["top_k"]:
        x = TopKLogitsWarper(o["top_k"])(ids, x)
    if 0 < o["top_p"] < 1:
        x = TopPLogitsWarper(o["top_p"])(ids, x)
    if o["min_p"]:
        x = MinPLogitsWarper(o["min_p"])(ids, x)
    p = torch.softmax(x, -1)[0]
    o["probabilities"] = {str(k): round(v, 9) for k, v in enumerate(p.tolist()) if v > 0}
    rows.append(o)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "sampling.json"), "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")
