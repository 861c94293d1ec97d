"""Tunes the last four layers of a model of 1.5 B weights under a limit of 8 GiB of memory.

    python3 bench/large.py [--engine PROGRAM] [--gib 8] [--steps 3] [--keep DIR]

It writes a directory of the shape of Qwen2.5-1.5B with random bfloat16 weights, in shards and with little
memory, and runs the engine in a memory cgroup (Linux, as root). It needs 14 GB of disk, Python and
nothing else. The run ends with a checkpoint, which is part of what has to fit.
"""
import argparse, array, json, os, random, re, shutil, struct, subprocess, sys, tempfile

HIDDEN, LAYERS, HEADS, KV, FFN, VOCAB = 1536, 28, 12, 2, 8960, 151936


def shapes():
    """Lists (name, shape) by layer: the embedding, each layer, the last norm."""
    kv = KV * HIDDEN // HEADS
    yield [("model.embed_tokens.weight", (VOCAB, HIDDEN))]
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield [(at + "input_layernorm.weight", (HIDDEN,)), (at + "post_attention_layernorm.weight", (HIDDEN,)),
               (at + "self_attn.q_proj.weight", (HIDDEN, HIDDEN)), (at + "self_attn.q_proj.bias", (HIDDEN,)),
               (at + "self_attn.k_proj.weight", (kv, HIDDEN)), (at + "self_attn.k_proj.bias", (kv,)),
               (at + "self_attn.v_proj.weight", (kv, HIDDEN)), (at + "self_attn.v_proj.bias", (kv,)),
               (at + "self_attn.o_proj.weight", (HIDDEN, HIDDEN)), (at + "mlp.gate_proj.weight", (FFN, HIDDEN)),
               (at + "mlp.up_proj.weight", (FFN, HIDDEN)), (at + "mlp.down_proj.weight", (HIDDEN, FFN))]
    yield [("model.norm.weight", (HIDDEN,))]


def count(shape):
    n = 1
    for d in shape:
        n *= d
    return n


def write(folder):
    """Writes the model's directory."""
    rnd = random.Random(1)
    block = array.array("H", (struct.unpack("<I", struct.pack("<f", rnd.gauss(0, 0.02)))[0] >> 16 for _ in range(1 << 18))).tobytes()
    ones = struct.pack("<H", 0x3F80)
    names, total = {}, 0
    parts = list(shapes())
    for i, part in enumerate(parts):
        name = f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors"
        header, at = {}, 0
        for tensor, shape in part:
            size = 2 * count(shape)
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            at, names[tensor] = at + size, name
        total += at
        text = json.dumps(header).encode()
        with open(os.path.join(folder, name), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for tensor, shape in part:
                left = 2 * count(shape)
                source = ones * (1 << 17) if "norm" in tensor else block
                while left > 0:
                    left -= f.write(source[:left])
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": names}, f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
                   "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": FFN, "vocab_size": VOCAB,
                   "max_position_embeddings": 32768, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6, "hidden_act": "silu",
                   "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_sliding_window": False}, f)
    return total // 2


def limited(gib):
    """Makes a memory cgroup, and returns its folder and the file with the peak."""
    limit = str(int(gib * (1 << 30)))
    old = os.path.isdir("/sys/fs/cgroup/memory")
    group = ("/sys/fs/cgroup/memory" if old else "/sys/fs/cgroup") + f"/troupe-large-{os.getpid()}"
    os.mkdir(group)
    with open(os.path.join(group, "memory.limit_in_bytes" if old else "memory.max"), "w") as f:
        f.write(limit)
    return group, os.path.join(group, "memory.max_usage_in_bytes" if old else "memory.peak")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", default="bin/engine")
    p.add_argument("--gib", type=float, default=8)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--context", type=int, default=128)
    p.add_argument("--keep", help="a folder for the model, which stays")
    o = p.parse_args()
    work = o.keep or tempfile.mkdtemp()
    model = os.path.join(work, "model")
    try:
        if not os.path.isdir(model):
            os.makedirs(model)
            print(f"{write(model):,} weights in {model}", flush=True)
        ids = os.path.join(work, "ids.bin")
        rnd = random.Random(2)
        with open(ids, "wb") as f:
            array.array("I", (rnd.randrange(VOCAB) for _ in range(40 * o.context))).tofile(f)
        run = os.path.join(work, "run")
        shutil.rmtree(run, ignore_errors=True)
        text = f"""
[run]
out = "{run}"
steps = {o.steps}
eval_every = 0
eval_batches = 1
checkpoint_every = 0
log_every = 1
[model]
from = "{model}"
context = {o.context}
freeze = ["embed", "0-{LAYERS - 5}"]
[data]
train = ["{ids}"]
format = "uint32"
[batch]
sequences = 2
microbatch = 1
[device]
dtype = "bfloat16"
"""
        config = os.path.join(work, "config.toml")
        with open(config, "w") as f:
            f.write(text)
        os.sync()  # what the run reads of the model is its own, not in memory already
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("1")
        group, peak = limited(o.gib)
        try:
            join = lambda: open(os.path.join(group, "cgroup.procs"), "w").write(str(os.getpid()))
            done = subprocess.run([o.engine, "run", config], preexec_fn=join, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            print(done.stdout)
            print(f"exit {done.returncode}; peak of the group {int(open(peak).read()) / (1 << 30):.2f} GiB of {o.gib:g}, mapped files among it")
            status = re.search(r"done: step (\d+)", done.stdout)
            return 0 if done.returncode == 0 and status and int(status.group(1)) == o.steps else 1
        finally:
            os.rmdir(group)
    finally:
        if not o.keep:
            shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
