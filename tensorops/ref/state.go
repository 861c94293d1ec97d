package ref

import (
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/optstate"
	"github.com/troupe-ml/troupe/tensorops"
)

// narrowState: what is stored is defined to the bit, so it starts from the float32 of each number.
func narrowState(op *tensorops.Op) {
	a := op.NarrowState()
	x, to := Values(a.X), Values(a.To)
	if !a.Scales.Valid() {
		for i, v := range x {
			to[i] = narrowBF16(float32(v), a.NarrowStateOpts, i)
		}
		return
	}
	scales := Values(a.Scales)
	for b := range scales {
		first := b * tensorops.StateBlock
		block := x[first:min(first+tensorops.StateBlock, len(x))]
		scale := float32(0x1p-40)
		for _, v := range block {
			scale = max(scale, stateMagnitude(v, a.Root))
		}
		scales[b] = float64(scale)
		for i, v := range block {
			k := stateCode(float64(stateMagnitude(v, a.Root)/scale), a.NarrowStateOpts, first+i)
			if to[first+i] = float64(k); !a.Root && v < 0 && k > 0 {
				to[first+i] = float64(k + 128)
			}
		}
	}
}

func stateMagnitude(v float64, root bool) float32 {
	if root {
		return float32(math.Sqrt(float64(float32(v))))
	}
	return float32(math.Abs(v))
}

// stateCode looks through all values for the two around r, and chooses one of them.
func stateCode(r float64, o tensorops.NarrowStateOpts, i int) int {
	values := optstate.Values(o.Root)
	k := 0
	for j, v := range values {
		if float64(v) <= r {
			k = j
		}
	}
	if k+1 == len(values) || r == float64(values[k]) {
		return k
	}
	share := (r - float64(values[k])) / (float64(values[k+1]) - float64(values[k]))
	switch {
	case o.Root && k == 0: // never 0
		return 1
	case o.Nearest && share > 0.5, !o.Nearest && share*(1<<16) > float64(stateHalf(o, i))+0.5:
		return k + 1
	}
	return k
}

// narrowBF16 rounds up if 16 random bits are above what the lower 16 bits leave to the next number.
func narrowBF16(v float32, o tensorops.NarrowStateOpts, i int) float64 {
	if o.Nearest || v-v != 0 {
		return bf16(float64(v))
	}
	bits := math.Float32bits(v)
	lower := float64(math.Float32frombits(bits &^ 0xffff))
	if int(bits&0xffff)+int(stateHalf(o, i)) <= 0xffff {
		return lower
	}
	upper := float64(math.Float32frombits(bits&^0xffff + 1<<16))
	if math.IsInf(upper, 0) {
		return lower
	}
	return upper
}

// stateHalf returns the random bits of element i.
func stateHalf(o tensorops.NarrowStateOpts, i int) uint16 {
	at := o.First + uint64(i)
	var words [4]uint32
	words[0], words[1], words[2], words[3] = rng.Block(o.Key, o.Update, at/8)
	return uint16(words[at%8/2] >> (16 * (at % 2)))
}

// widenState: x = value · scale, or its square.
func widenState(op *tensorops.Op) {
	a := op.WidenState()
	x, from := Values(a.X), Values(a.From)
	if !a.Scales.Valid() {
		copy(x, from)
		return
	}
	scales, values := Values(a.Scales), optstate.Values(a.Root)
	for i, c := range from {
		scale := scales[i/tensorops.StateBlock]
		switch {
		case a.Root:
			x[i] = math.Pow(float64(values[int(c)])*scale, 2)
		case c >= 128:
			x[i] = -float64(values[int(c)-128]) * scale
		default:
			x[i] = float64(values[int(c)]) * scale
		}
	}
}
