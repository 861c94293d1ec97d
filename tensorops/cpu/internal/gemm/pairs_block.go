package gemm

import "unsafe"

// Output is a matrix of bfloat16 to which complete sums are rounded as PairKernel rounds, Bias added before to each
// row where there is one. The zero value is none.
type Output struct {
	Data []uint16
	Row  int
	Bias []float32
}

// At is the matrix from row i and column j on.
func (r Output) At(i, j int) Output {
	if r.Data == nil {
		return r
	}
	at := Output{Data: r.Data[i*r.Row+j:], Row: r.Row}
	if r.Bias != nil {
		at.Bias = r.Bias[j:]
	}
	return at
}

// pairTileFunc multiplies strips of A, one after the other in memory, by one strip of B, both packed to a depth of some
// pairs: C = A·B, or C += A·B where add is set. Each strip counts with its first r rows; the pointers into C and half move
// down by r rows from strip to strip, so that strips > 1 makes sense for r = MR only. Where half is not nil, C + A·B or
// A·B is rounded and stored there instead, after bias, which may be nil, was added to each row. The tile that is
// computed after the last one is right bytes from c. ldc and ldh are the distances of rows, skip that of lines of next, in
// bytes.
type pairTileFunc func(strips, pairs int, a, b, c *float32, ldc, right int, add bool, half *uint16, ldh int, bias *float32, next *byte,
	lines, perRow, skip int)

// PackedA and PackedB are operands packed to some depth. Operand.From then takes a
// number of pairs.
func (p *PairKernel) PackedA(data []float32, depth int) Operand {
	return Operand{data, p.MR, p.MR * pairs(depth)}
}
func (p *PairKernel) PackedB(data []float32, depth int) Operand {
	return Operand{data, p.NR, p.NR * pairs(depth)}
}

// Part is Block over the first k of operands that may be deeper. Where k is odd and
// both are deeper, the last pair counts whole: one of them must hold a zero for the
// other k of it, and the other no infinity or NaN.
func (p *PairKernel) Part(c Matrix, m, n, k int, a, b Operand, add bool) {
	p.Multiply(Block{M: m, N: n, K: k, A: a, B: b, C: c, Add: add})
}

// Block computes C = A·B, or C += A·B where add is set, from packed operands: m
// rows of A and n columns of B, both of depth k. C's rows are contiguous.
func (p *PairKernel) Block(c Matrix, m, n, k int, a, b []float32, add bool) {
	p.Part(c, m, n, k, p.PackedA(a, k), p.PackedB(b, k), add)
}

// Fetches reports that Multiply fetches what is next.
func (p *PairKernel) Fetches() bool { return true }

// Multiply computes a block.
func (p *PairKernel) Multiply(b Block) {
	s := pairStrip{Block: b}
	for j := 0; j < b.N; j += p.NR {
		s.words = b.B.Data[j/p.NR*b.B.Strip:]
		if b.C.Data != nil {
			s.C.Data = b.C.Data[j:]
		}
		s.Out, s.N, s.Next = b.Out.At(0, j), min(p.NR, b.N-j), b.fetched(j, p.NR, pairs(b.K))
		p.strip(&s)
	}
}

// pairStrip is a block of one strip of B.
type pairStrip struct {
	Block
	words []float32
}

// strip computes the columns of a strip of B.
func (p *PairKernel) strip(s *pairStrip) {
	if s.N < p.NR {
		p.border(s)
		return
	}
	full := s.M / p.MR
	switch {
	case full == 0:
	case s.A.Strip == pairs(s.K)*s.A.K: // one after the other, as the tiles go
		p.run(s, 0, full, p.MR)
	default:
		for i := range full {
			p.run(s, i, 1, p.MR)
		}
	}
	if rows := s.M - full*p.MR; rows > 0 {
		p.run(s, full, 1, rows)
	}
}

// run computes some strips of A, from one on, of which some rows count. What is fetched is as much as one call has time for, from
// the beginning: where there are several, it is the first one's.
func (p *PairKernel) run(s *pairStrip, first, strips, rows int) {
	i := first * p.MR
	c, ldc, right := (*float32)(nil), 0, 4*p.NR
	var half *uint16
	var bias *float32
	if s.Out.Data != nil {
		half = &s.Out.Data[i*s.Out.Row]
		if s.Out.Bias != nil {
			bias = &s.Out.Bias[0]
		}
		// What is written next is fetched: where there are no sums to read, it is the bfloat16.
		c, ldc, right = (*float32)(unsafe.Pointer(half)), 2*s.Out.Row, 2*p.NR
	}
	if s.Out.Data == nil || s.Add {
		c, ldc, right = &s.C.Data[i*s.C.Row], 4*s.C.Row, 4*p.NR
	}
	next := s.Next
	if first > 0 {
		next = Memory{}
	}
	p.tile[rows](strips, pairs(s.K), &s.A.Data[first*s.A.Strip], &s.words[0], c, ldc, right, s.Add, half, 2*s.Out.Row, bias, next.first,
		next.lines, next.perRow, next.skip)
}

// border computes an incomplete strip of B: whole tiles beside C, by the same sums, of which the first columns are stored.
func (p *PairKernel) border(s *pairStrip) {
	tile := tiles.Get().(*[maxTile]float32)
	defer tiles.Put(tile)
	for i := 0; i < s.M; i += p.MR {
		rows := min(p.MR, s.M-i)
		p.tile[rows](1, pairs(s.K), &s.A.Data[i/p.MR*s.A.Strip], &s.words[0], &tile[0], 4*p.NR, 0, false, nil, 0, nil, nil, 0, 0, 0)
		for r := range rows {
			sums := tile[r*p.NR:][:s.N]
			if s.Add {
				for j, v := range s.C.Data[(i+r)*s.C.Row:][:s.N] {
					sums[j] += v
				}
			}
			if s.Out.Data == nil {
				copy(s.C.Data[(i+r)*s.C.Row:], sums)
				continue
			}
			s.Out.At(i+r, 0).store(sums)
		}
	}
}

// store rounds sums to a row.
func (r Output) store(sums []float32) {
	for j, v := range sums {
		if r.Bias != nil {
			v += r.Bias[j]
		}
		r.Data[j] = uint16(rounded16(v))
	}
}
