package attn_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu/internal/attn"
	"github.com/troupe-ml/troupe/tensorops/cpu/internal/gemm"
)

var update = flag.Bool("update", false, "record the bits of AVX2 again")

// redraw draws all that goes in again, by integer arithmetic alone, so that it is the same on
// every architecture: numbers of magnitudes between 2^-4 and 2.
func (p *problem) redraw(r *rand.Rand) {
	in := []gemm.Matrix{p.kv.K, p.kv.V}
	for _, h := range p.heads {
		in = append(in, h.Q, h.DO)
	}
	for _, m := range in {
		for i := range m.Data {
			b := r.Uint32()
			m.Data[i] = math.Float32frombits(b&(1<<31) | (123+b>>8%5)<<23 | r.Uint32()&(1<<23-1))
		}
	}
}

// TestRecorded: attention and its gradient have the bits that AVX2 gave when they were
// recorded, on the paths of every architecture that multiply float32 with fused multiply-adds.
func TestRecorded(t *testing.T) {
	const golden = "testdata/bits.txt"
	for _, kn := range available() {
		if kn.Gemm == &gemm.Go || kn.MultipliesBF16() {
			continue
		}
		t.Run(kn.Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(31, 32))
			var got strings.Builder
			for _, s := range []struct {
				queries, more, dim, group, window int
				dropout                           bool
				cap                               float32
			}{{1, 0, 1, 1, 0, false, 0}, {5, 3, 7, 2, 0, false, 0}, {16, 0, 16, 1, 0, true, 0}, {70, 6, 33, 2, 0, false, 0},
				{301, 0, 24, 1, 50, true, 0}, {290, 300, 8, 1, 0, false, 0}, {70, 6, 33, 2, 0, false, 2}} {
				p := newProblem(rand.New(rand.NewPCG(1, 1)), float, s.queries, s.queries+s.more, s.dim, s.group, s.dropout, s.window)
				p.redraw(r)
				p.Cap = s.cap
				p.run(kn, new(attn.Workspace))
				h := fnv.New64a()
				out := []gemm.Matrix{p.kv.DK, p.kv.DV}
				for _, head := range p.heads {
					out = append(out, head.O, head.DQ, gemm.Matrix{Data: head.LSE, Row: 1, Col: 1})
				}
				for i, m := range out {
					cols, rows := p.Dim, len(m.Data)/m.Row
					if m.Row == 1 {
						cols = 1
					}
					for j := range rows {
						for c := range cols {
							fmt.Fprintf(h, "%d %x ", i, math.Float32bits(m.Data[j*m.Row+c]))
						}
					}
				}
				fmt.Fprintf(&got, "%+v: %016x\n", s, h.Sum64())
			}
			if *update {
				if kn.Gemm.Name != "avx2" {
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
