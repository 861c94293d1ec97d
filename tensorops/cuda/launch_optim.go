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
	out, x     uint64
	n          int64
	first      int64 // of its blocks
	aligned, _ uint32
}

// squaredNorms computes those that follow each other, in one pass over all elements and
// one over the sums of blocks.
func squaredNorms(x *exec, ops []tensorops.Op) (int, error) {
	var entries []normEntry
	var outs extents
	blocks := int64(0)
	for i := range ops {
		o := &ops[i]
		if o.Kind != tensorops.KindSquaredNorm || i == LimitTable || !outs.add(o.T[0]) {
			break // never the first
		}
		in, n := address(o.T[1]), int64(o.T[1].Len())
		entries = append(entries, normEntry{out: address(o.T[0]), x: in, n: n, first: blocks, aligned: aligned(in)})
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
	w, m, v, g uint64
	n          int64
	first      int64   // of its blocks
	keep       float32 // 1 − rate·decay
	aligned    uint32
}

// adamWs makes the updates that follow each other and differ in nothing but the decay of
// the weights, in one launch.
func adamWs(x *exec, ops []tensorops.Op) (int, error) {
	const decay = 4 // in F
	o := &ops[0]
	rate, beta1, beta2, eps, scale := o.F[0], o.F[1], o.F[2], o.F[3], o.F[5]
	var entries []adamWEntry
	var changed extents
	blocks := int64(0)
	for i := range ops {
		other := &ops[i]
		numbers := other.F
		numbers[decay] = o.F[decay]
		same := other.Kind == o.Kind && other.Flags == o.Flags && other.I == o.I && numbers == o.F
		if i > 0 && (!same || i == LimitTable) {
			break
		}
		alone := !changed.add(other.T[:4]...) // it depends on one before, or its own tensors overlap
		if i > 0 && alone {
			break
		}
		w, m, v, g, n := address(other.T[0]), address(other.T[1]), address(other.T[2]), address(other.T[3]), int64(other.T[0].Len())
		entries = append(entries, adamWEntry{w: w, m: m, v: v, g: g, n: n, first: blocks,
			keep: float32(1 - rate*other.F[decay]), aligned: aligned(w, m, v, g)})
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
	step := float64(o.I[0])
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
		beta1: float32(beta1), rest1: float32(1 - beta1),
		beta2: float32(beta2), rest2: float32(1 - beta2),
		rate:  float32(rate / (1 - math.Pow(beta1, step))),
		root:  float32(1 / math.Sqrt(1-math.Pow(beta2, step))),
		eps:   float32(eps),
		scale: float32(scale),
		clear: number(o.Has(tensorops.FlagClear)),
	})
}

func sgd(x *exec, o *tensorops.Op) error {
	w, m, g, n := address(o.T[0]), address(o.T[1]), address(o.T[2]), o.T[0].Len()
	return elementwise(x, "sgd", n, &struct {
		w, m, g                      uint64
		n                            int64
		rate, momentum, decay, scale float32
		aligned, pad                 uint32
	}{
		w: w, m: m, g: g, n: int64(n),
		rate: float32(o.F[0]), momentum: float32(o.F[1]), decay: float32(o.F[2]), scale: float32(o.F[3]),
		aligned: aligned(w, m, g),
	})
}
