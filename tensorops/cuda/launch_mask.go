package cuda

import "github.com/troupe-ml/troupe/tensorops"

// dropout is dropout of rng.cuh: what a kernel draws an operation's mask from.
type dropout struct {
	counters              uint64
	key0, key1, threshold uint32
	scale                 float32
}

// dropoutOf is the mask of an operation that is masked: the next of its segment.
func dropoutOf(x *exec, m tensorops.Mask) dropout {
	return dropout{
		counters: x.variables.next(),
		key0:     m.Key.K0, key1: m.Key.K1,
		threshold: uint32(m.P * (1 << 32)), scale: float32(1 / (1 - m.P)),
	}
}

// masked reports whether an operation draws a mask.
func masked(o *tensorops.Op) bool {
	switch o.Kind {
	case tensorops.KindDropout, tensorops.KindJitter, tensorops.KindAttention, tensorops.KindAttentionGrad:
		return o.Mask().P > 0
	}
	return false
}
