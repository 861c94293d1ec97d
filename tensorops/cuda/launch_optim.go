package cuda

import (
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

var optimLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindSquaredNorm: squaredNorm,
	tensorops.KindAdamW:       adamW,
	tensorops.KindSGD:         sgd,
}

func squaredNorm(x *exec, o *tensorops.Op) error {
	const (
		ofBlock = 16384 // elements
		threads = 256
	)
	in, n := address(o.T[1]), o.T[1].Len()
	blocks := ceil(n, ofBlock)
	partial, err := x.scratch(8 * max(blocks, 1))
	if err != nil {
		return err
	}
	if blocks > 0 {
		err := launch(x, "squares", grid{x: blocks, threads: threads}, &struct {
			partial, x   uint64
			n, ofBlock   int64
			aligned, pad uint32
		}{partial: partial, x: in, n: int64(n), ofBlock: ofBlock, aligned: aligned(in)})
		if err != nil {
			return err
		}
	}
	return launch(x, "add_squares", grid{threads: threads}, &struct {
		out, partial uint64
		blocks       int64
	}{address(o.T[0]), partial, int64(blocks)})
}

func adamW(x *exec, o *tensorops.Op) error {
	w, m, v, g, n := address(o.T[0]), address(o.T[1]), address(o.T[2]), address(o.T[3]), o.T[0].Len()
	rate, beta1, beta2, eps, decay, scale := o.F[0], o.F[1], o.F[2], o.F[3], o.F[4], o.F[5]
	step := float64(o.I[0])
	return elementwise(x, "adamw", n, &struct {
		w, m, v, g   uint64
		n            int64
		beta1, rest1 float32
		beta2, rest2 float32
		keep         float32
		rate         float32
		root         float32
		eps          float32
		scale        float32
		clear        int32
		aligned, pad uint32
	}{
		w: w, m: m, v: v, g: g, n: int64(n),
		beta1: float32(beta1), rest1: float32(1 - beta1),
		beta2: float32(beta2), rest2: float32(1 - beta2),
		keep:    float32(1 - rate*decay),
		rate:    float32(rate / (1 - math.Pow(beta1, step))),
		root:    float32(1 / math.Sqrt(1-math.Pow(beta2, step))),
		eps:     float32(eps),
		scale:   float32(scale),
		clear:   number(o.Has(tensorops.FlagClear)),
		aligned: aligned(w, m, v, g),
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
