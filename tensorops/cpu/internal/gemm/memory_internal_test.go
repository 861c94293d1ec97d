package gemm

import (
	"testing"
	"unsafe"
)

// TestMemoryB: of each row of what PackB reads, whatever lies side by side, all lines are fetched but the one before its
// first whole one, and nothing that is far from it.
func TestMemoryB(t *testing.T) {
	const lines = 1 << 12
	numbers := make([]uint16, lines*lineBytes/2)
	base := uintptr(unsafe.Pointer(&numbers[0]))
	for _, c := range []struct{ k, n, row, from int }{
		{1, 1, 1, 0}, {100, 32, 96, 0}, {100, 32, 101, 7}, {64, 17, 17, 3}, {9, 200, 224, 0}, {9, 200, 201, 31},
	} {
		for _, transposed := range []bool{false, true} {
			b := Matrix{Half: numbers[c.from:], Row: c.row, Col: 1}
			m := MemoryB(b, c.k, c.n)
			if transposed {
				m = MemoryB(b.T(), c.n, c.k)
			}
			fetched := make(map[uintptr]bool)
			next, left := uintptr(unsafe.Pointer(m.first)), m.perRow
			for range m.lines { // as a tile does
				fetched[next/lineBytes] = true
				next += lineBytes
				if left--; left == 0 {
					left = m.perRow
					next += uintptr(m.skip)
				}
			}
			first := base + uintptr(2*c.from)
			for r := range c.k {
				row := first + uintptr(2*r*c.row)
				for at := (row + lineBytes - 1) / lineBytes; at <= (row+uintptr(2*c.n)-1)/lineBytes; at++ {
					if !fetched[at] {
						t.Errorf("%+v, transposed %v: line %d of row %d is not fetched", c, transposed, at-row/lineBytes, r)
					}
				}
			}
			for at := range fetched {
				if at < first/lineBytes || at > (first+uintptr(2*((c.k-1)*c.row+c.n)))/lineBytes+1 {
					t.Errorf("%+v, transposed %v: line %d is fetched", c, transposed, int(at)-int(first/lineBytes))
				}
			}
		}
	}
	if m := MemoryB(Matrix{Half: numbers, Row: 7, Col: 3}, 5, 5); m != (Memory{}) {
		t.Errorf("%+v of what lies in neither direction", m)
	}
}
