package gemm_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

var update = flag.Bool("update", false, "record the bits of AVX2 again")

// exactly draws a matrix by integer arithmetic alone, so that it is the same on every
// architecture: numbers of magnitudes between 2^-4 and 2^4.
func exactly(r *rand.Rand, rows, cols int, transposed bool) gemm.Matrix {
	m := gemm.Matrix{Data: make([]float32, rows*cols), Row: cols, Col: 1}
	if transposed {
		m.Row, m.Col = 1, rows
	}
	for i := range m.Data {
		b := r.Uint32()
		m.Data[i] = math.Float32frombits(b&(1<<31) | (123+b>>8%8)<<23 | r.Uint32()&(1<<23-1))
	}
	return m
}

// TestRecorded: products have the bits that AVX2 gave when they were recorded, on every path
// with fused multiply-adds, of every architecture.
func TestRecorded(t *testing.T) {
	const golden = "testdata/bits.txt"
	for _, kn := range gemm.Available() {
		if kn == &gemm.Go {
			continue
		}
		t.Run(kn.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(21, 22))
			var ws workspace
			var got strings.Builder
			for _, s := range [][3]int{{1, 1, 1}, {1, 16, 7}, {6, 16, 64}, {7, 17, 300}, {13, 33, 5}, {50, 70, 600}, {200, 96, 256}} {
				for _, f := range []form{{}, {ta: true}, {tb: true}, {ta: true, tb: true, add: true}} {
					m, n, k := s[0], s[1], s[2]
					a, b, c := exactly(r, m, k, f.ta), exactly(r, k, n, f.tb), exactly(r, m, n, false)
					multiply(kn, &ws, m, n, k, a, b, c, f.add)
					h := fnv.New64a()
					for _, v := range c.Data {
						fmt.Fprintf(h, "%x ", math.Float32bits(v))
					}
					fmt.Fprintf(&got, "%d×%d×%d, transposed %v %v, added %v: %016x\n", m, n, k, f.ta, f.tb, f.add, h.Sum64())
				}
			}
			if *update {
				if kn.Name != "avx2" {
					t.Skip("only AVX2 is recorded")
				}
				if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got\n%swas\n%s", &got, want)
			}
		})
	}
}
