package gemm

import "sync"

// Block computes C = A·B, or C += A·B where add is set, from packed operands: m
// rows of A and n columns of B, both of depth k ≤ BlockK. C's rows are
// contiguous.
func (kn *Kernel) Block(c Matrix, m, n, k int, a, b []float32, add bool) {
	kn.Part(c, m, n, k, kn.PackedA(a, k), kn.PackedB(b, k), add)
}

// Operand is an operand as the tiles read it: element i of strip s is, for each k,
// Data[s·Strip + k·K + i].
type Operand struct {
	Data     []float32
	K, Strip int
}

// PackedA and PackedB are operands packed to some depth.
func (kn *Kernel) PackedA(data []float32, depth int) Operand {
	return Operand{data, kn.MR, kn.MR * depth}
}
func (kn *Kernel) PackedB(data []float32, depth int) Operand {
	return Operand{data, kn.NR, kn.NR * depth}
}

// From is the operand from k on, for Part, which then ends at the operand's
// depth at the latest.
func (o Operand) From(k int) Operand { return Operand{o.Data[k*o.K:], o.K, o.Strip} }

// Part is Block over the first k of operands that may be deeper.
func (kn *Kernel) Part(c Matrix, m, n, k int, a, b Operand, add bool) {
	full := m / kn.MR
	for j := 0; j < n; j += kn.NR {
		strip := &b.Data[j/kn.NR*b.Strip]
		switch {
		case j+kn.NR > n:
			kn.border(c.At(0, j), m, n-j, k, a, strip, b.K, add)
			continue
		case a.Strip == k*a.K && full > 0: // one after the other, as the tiles go
			kn.tile[kn.MR](full, k, &a.Data[0], strip, &c.Data[j], a.K, b.K, c.Row, add)
		default:
			for i := range full {
				kn.tile[kn.MR](1, k, &a.Data[i*a.Strip], strip, &c.Data[i*kn.MR*c.Row+j], a.K, b.K, c.Row, add)
			}
		}
		if i := full * kn.MR; i < m {
			kn.tile[m-i](1, k, &a.Data[full*a.Strip], strip, &c.Data[i*c.Row+j], a.K, b.K, c.Row, add)
		}
	}
}

// tiles are those beside C. They are used again, since what an assembly function
// gets through a variable is not kept on the stack.
var tiles = sync.Pool{New: func() any { return new([maxTile]float32) }}

// border computes the columns of an incomplete strip of B: whole tiles beside C,
// by the same sums, of which the first n columns are stored.
func (kn *Kernel) border(c Matrix, m, n, k int, a Operand, strip *float32, ldb int, add bool) {
	tile := tiles.Get().(*[maxTile]float32)
	defer tiles.Put(tile)
	for i := 0; i < m; i += kn.MR {
		rows := min(kn.MR, m-i)
		kn.tile[rows](1, k, &a.Data[i/kn.MR*a.Strip], strip, &tile[0], a.K, ldb, kn.NR, false)
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
