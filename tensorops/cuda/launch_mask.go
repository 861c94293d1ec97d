package cuda

import "github.com/troupe-ml/troupe/tensorops"

// dropout is dropout of rng.cuh: what a kernel draws an operation's mask from.
type dropout struct {
	step, first           uint64
	key0, key1, threshold uint32
	scale                 float32
}

func dropoutOf(o *tensorops.Op) dropout {
	p := o.F[0]
	return dropout{
		step: o.U[0], first: o.U[1],
		key0: o.Key.K0, key1: o.Key.K1,
		threshold: uint32(p * (1 << 32)), scale: float32(1 / (1 - p)),
	}
}
