package gemm

import "sync"

// Block computes C = A·B, or C += A·B where add is set, from packed operands: m
// rows of A and n columns of B, both of depth k ≤ BlockK. C's rows are
// contiguous.
func (kn *Kernel) Block(c Matrix, m, n, k int, a, b []float32, add bool) {
	kn.Part(c, m, n, k, Packed{a, k}, Packed{b, k}, add)
}

// Packed is an operand packed to some depth.
type Packed struct {
	Data  []float32
	Depth int
}

// From is the operand from k on, for Part, which then ends at the operand's
// depth at the latest. strip is MR for an operand A, NR for a B.
func (p Packed) From(k, strip int) Packed { return Packed{p.Data[k*strip:], p.Depth} }

// Part is Block over the first k of operands that may be packed deeper.
func (kn *Kernel) Part(c Matrix, m, n, k int, a, b Packed, add bool) {
	full := m / kn.MR
	for j := 0; j < n; j += kn.NR {
		strip := &b.Data[j*b.Depth]
		switch {
		case j+kn.NR > n:
			kn.border(c.At(0, j), m, n-j, k, a, strip, add)
			continue
		case a.Depth == k && full > 0:
			kn.tile[kn.MR](full, k, &a.Data[0], strip, &c.Data[j], c.Row, add)
		default:
			for i := 0; i < full*kn.MR; i += kn.MR {
				kn.tile[kn.MR](1, k, &a.Data[i*a.Depth], strip, &c.Data[i*c.Row+j], c.Row, add)
			}
		}
		if i := full * kn.MR; i < m {
			kn.tile[m-i](1, k, &a.Data[i*a.Depth], strip, &c.Data[i*c.Row+j], c.Row, add)
		}
	}
}

// tiles are those beside C. They are used again, since what an assembly function
// gets through a variable is not kept on the stack.
var tiles = sync.Pool{New: func() any { return new([maxTile]float32) }}

// border computes the columns of an incomplete strip of B: whole tiles beside C,
// by the same sums, of which the first n columns are stored.
func (kn *Kernel) border(c Matrix, m, n, k int, a Packed, strip *float32, add bool) {
	tile := tiles.Get().(*[maxTile]float32)
	defer tiles.Put(tile)
	for i := 0; i < m; i += kn.MR {
		rows := min(kn.MR, m-i)
		kn.tile[rows](1, k, &a.Data[i*a.Depth], strip, &tile[0], kn.NR, false)
		for r := range rows {
			dst, src := c.Data[(i+r)*c.Row:][:n], tile[r*kn.NR:][:n]
			if !add {
				copy(dst, src)
				continue
			}
			for j, v := range src {
				dst[j] += v
			}
		}
	}
}
