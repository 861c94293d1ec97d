package cuda

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

var optimLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindSGD: sgd,
}

// ofBlock is how many elements of a tensor a block has, where a launch goes through several
// tensors: OF_BLOCK of optim.cu. The order of a squared norm's sum depends on it.
const ofBlock = 16384

const optimThreads = 256

// normEntry is norm_entry of optim.cu.
type normEntry struct {
	out, x  uint64
	n       int64
	first   int64 // of its blocks
	aligned uint32
	half    uint32 // x is bfloat16
}

// squaredNorms computes those that follow each other, in one pass over all elements and
// one over the sums of blocks.
func squaredNorms(x *exec, ops []tensorops.Op) (int, error) {
	var entries []normEntry
	var outs extents
	blocks := int64(0)
	for i := range ops { // the first is always one of them
		if ops[i].Kind != tensorops.KindSquaredNorm || i == limitTable {
			break
		}
		a := ops[i].SquaredNorm()
		if !outs.add(a.Out) {
			break
		}
		n := int64(a.X.Len())
		entries = append(entries, normEntry{out: address(a.Out), x: address(a.X), n: n, first: blocks, aligned: alignedFours(a.X),
			half: halves(a.X)})
		blocks += (n + ofBlock - 1) / ofBlock
	}
	args := struct {
		partial, entries uint64
		count, blocks    int64
	}{count: int64(len(entries)), blocks: blocks}
	var err error
	if args.entries, err = table(x, entries); err != nil {
		return 0, err
	}
	if args.partial, err = x.scratch(int(8 * max(blocks, 1))); err != nil {
		return 0, err
	}
	if blocks > 0 {
		if err := launch(x, "squares", grid{x: int(blocks), threads: optimThreads}, &args); err != nil {
			return 0, err
		}
	}
	return len(entries), launch(x, "add_squares", grid{x: len(entries), threads: optimThreads}, &args)
}

// adamWEntry is adamw_entry of optim.cu.
type adamWEntry struct {
	w, m, v, g, copy uint64 // copy may be 0
	n                int64
	first            int64   // of its blocks
	keep             float32 // 1 − rate·decay
	aligned          uint32
}

// adamWs makes the updates that follow each other and differ in nothing but the decay of
// the weights and in what they write, in one launch.
func adamWs(x *exec, ops []tensorops.Op) (int, error) {
	first := ops[0].AdamW().AdamWOpts
	var entries []adamWEntry
	var changed extents
	blocks := int64(0)
	for i := range ops { // the first is always one of them
		if ops[i].Kind != tensorops.KindAdamW || i == limitTable {
			break
		}
		a := ops[i].AdamW()
		numbers := a.AdamWOpts
		numbers.WeightDecay, numbers.Copy = first.WeightDecay, first.Copy
		if i > 0 && numbers != first {
			break
		}
		alone := !changed.add(a.W, a.M, a.V, a.G, a.Copy) // it depends on one before, or its own tensors overlap
		if i > 0 && alone {
			break
		}
		n := int64(a.W.Len())
		entries = append(entries, adamWEntry{w: address(a.W), m: address(a.M), v: address(a.V), g: address(a.G), copy: address(a.Copy), n: n,
			first: blocks,
			keep:  float32(1 - first.LR*a.WeightDecay), aligned: alignedFours(a.W, a.M, a.V, a.G, a.Copy)})
		blocks += (n + ofBlock - 1) / ofBlock
		if alone {
			break
		}
	}
	if blocks == 0 {
		return len(entries), nil
	}
	at, err := table(x, entries)
	if err != nil {
		return 0, err
	}
	step := float64(first.Step)
	return len(entries), launch(x, "adamw", grid{x: int(blocks), threads: optimThreads}, &struct {
		entries      uint64
		count        int64
		beta1, rest1 float32
		beta2, rest2 float32
		rate         float32
		root         float32
		eps          float32
		scale        float32
		clear, pad   int32
	}{
		entries: at, count: int64(len(entries)),
		beta1: float32(first.Beta1), rest1: float32(1 - first.Beta1),
		beta2: float32(first.Beta2), rest2: float32(1 - first.Beta2),
		rate:  float32(first.LR / (1 - math.Pow(first.Beta1, step))),
		root:  float32(1 / math.Sqrt(1-math.Pow(first.Beta2, step))),
		eps:   float32(first.Eps),
		scale: float32(first.GradScale),
		clear: number(first.ClearGrad),
	})
}

func sgd(x *exec, o *tensorops.Op) error {
	a := o.SGD()
	n := a.W.Len()
	return elementwise(x, "sgd", n, &struct {
		w, m, g, copy                uint64
		n                            int64
		rate, momentum, decay, scale float32
		aligned, pad                 uint32
	}{
		w: address(a.W), m: address(a.M), g: address(a.G), copy: address(a.Copy), n: int64(n),
		rate: float32(a.LR), momentum: float32(a.Momentum), decay: float32(a.WeightDecay), scale: float32(a.GradScale),
		aligned: alignedFours(a.W, a.M, a.G, a.Copy),
	})
}
