package cuda

import "github.com/troupe-ml/troupe/tensorops"

// dropout is dropout of rng.cuh: what a kernel draws an operation's mask from.
type dropout struct {
	counters              uint64
	key0, key1, threshold uint32
	scale                 float32
}

// dropoutOf is the mask of an operation that is masked: the next of its segment.
func dropoutOf(x *exec, o *tensorops.Op) dropout {
	p := o.F[0]
	return dropout{
		counters: x.variables.next(),
		key0:     o.Key.K0, key1: o.Key.K1,
		threshold: uint32(p * (1 << 32)), scale: float32(1 / (1 - p)),
	}
}

// masked reports whether an operation draws a mask.
func masked(o *tensorops.Op) bool {
	switch o.Kind {
	case tensorops.KindDropout, tensorops.KindAttention, tensorops.KindAttentionGrad:
		return o.F[0] > 0
	}
	return false
}
