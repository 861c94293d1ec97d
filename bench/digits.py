"""Test accuracy on the handwritten digits of examples/digits, beside scikit-learn's.

    python bench/digits.py [--seeds 5]

Trains examples/gorgonia-mlp, the same sizes as the family mlp, and scikit-learn's
MLPClassifier on the same split (1,437 and 360 images) for some seeds each, and prints the share
of the test's images that each gets right. It needs Go, and Python with scikit-learn.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import tempfile
import warnings

import sklearn
from sklearn.neural_network import MLPClassifier

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read(name):
    with open(os.path.join(ROOT, "examples", "digits", name), newline="") as f:
        rows = list(csv.DictReader(f))
    x = [[float(v) / 16 for k, v in row.items() if k != "label"] for row in rows]
    return x, [int(row["label"]) for row in rows]


def engine(program, seed, sets):
    with tempfile.TemporaryDirectory() as out:
        args = [program, "run", "examples/gorgonia-mlp/config.toml", "--quiet"]
        for s in [f"run.out={out}", f"run.seed={seed}", "run.eval_every=0", *sets]:
            args += ["--set", s]
        subprocess.run(args, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "metrics.jsonl")) as f:
            last = json.loads(f.readlines()[-1])
    return 100 * last["val_metrics"]["accuracy"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", type=int, default=5)
    seeds = range(1, p.parse_args().seeds + 1)
    train, test = read("digits-train.csv"), read("digits-test.csv")
    with tempfile.TemporaryDirectory() as bin:
        program = os.path.join(bin, "gorgonia-mlp")
        subprocess.run(["go", "build", "-o", program, "./examples/gorgonia-mlp"], cwd=ROOT, check=True)
        results = {
            "Gorgonia graphs, 3 stages": [engine(program, s, []) for s in seeds],
            "family mlp, 3 stages": [engine(program, s, ["model.family=mlp"]) for s in seeds],
        }
    # As many images as the engine sees, 1,500 steps of 32; its own defaults otherwise.
    warnings.filterwarnings("ignore", module="sklearn")
    theirs = []
    for s in seeds:
        c = MLPClassifier((64, 64), batch_size=32, max_iter=1500 * 32 // len(train[0]), random_state=s)
        theirs.append(100 * c.fit(*train).score(*test))
    results[f"scikit-learn {sklearn.__version__}"] = theirs
    theirs = []
    for s in seeds:
        c = MLPClassifier((64, 64), max_iter=400, random_state=s)  # until it says that it has converged
        theirs.append(100 * c.fit(*train).score(*test))
    results["the same, its own batches, to convergence"] = theirs
    for name, of in results.items():
        print(f"{name:45} {statistics.mean(of):6.2f} %   {min(of):.2f} to {max(of):.2f}")


if __name__ == "__main__":
    main()
