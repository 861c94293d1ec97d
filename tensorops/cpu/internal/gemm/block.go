package gemm

import "sync"

// Block is a block of a product: C = A·B, or C += A·B where Add is set, of M rows of A and N columns of B, both of
// depth K.
type Block struct {
	M, N, K int
	A, B    Operand // packed
	C       Matrix  // sums in contiguous rows
	Add     bool
	Out     Output // where the block is complete, and is to be bfloat16: C is then only read, and only where Add is set
	Next    Memory // prefetched meanwhile, again with each strip of B
}

// fetched is what is fetched while the strip of B from column j on is multiplied: Next, or else the strip after it where B is
// packed, of a depth in words.
func (b *Block) fetched(j, nr, depth int) Memory {
	if b.Next.first != nil || b.B.K != nr || j+nr >= b.N {
		return b.Next
	}
	return memory(b.B.Data[(j/nr+1)*b.B.Strip:], 1, depth*nr, depth*nr)
}

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
	kn.Multiply(Block{M: m, N: n, K: k, A: a, B: b, C: c, Add: add})
}

// Multiply computes a block.
func (kn *Kernel) Multiply(b Block) {
	full := b.M / kn.MR
	for j := 0; j < b.N; j += kn.NR {
		strip, next := &b.B.Data[j/kn.NR*b.B.Strip], b.fetched(j, kn.NR, b.K)
		run := func(i, strips, rows int, next Memory) {
			kn.tile[rows](strips, b.K, &b.A.Data[i*b.A.Strip], strip, &b.C.Data[i*kn.MR*b.C.Row+j], b.A.K, b.B.K, b.C.Row, b.Add, next.first,
				next.lines, next.perRow, next.skip)
		}
		switch {
		case j+kn.NR > b.N:
			kn.border(b.C.At(0, j), b.M, b.N-j, b.K, b.A, strip, b.B.K, b.Add)
			continue
		case b.A.Strip == b.K*b.A.K && full > 0: // one after the other, as the tiles go
			run(0, full, kn.MR, next)
		default:
			for i := range full {
				run(i, 1, kn.MR, next)
				next = Memory{}
			}
		}
		if full*kn.MR < b.M {
			run(full, 1, b.M-full*kn.MR, Memory{})
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
		kn.tile[rows](1, k, &a.Data[i/kn.MR*a.Strip], strip, &tile[0], a.K, ldb, kn.NR, false, nil, 0, 0, 0)
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
