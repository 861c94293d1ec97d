package vec

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "record the bits of AVX2 again")

// exactly draws numbers by integer arithmetic alone, so that they are the same on every
// architecture: of magnitudes between 2^-7 and 2^4, some of them far from there.
func exactly(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		b := r.Uint32()
		exponent := 120 + b>>8%11
		if b&0xff == 0 {
			exponent = 100 + b>>8%35
		}
		x[i] = math.Float32frombits(b&(1<<31) | exponent<<23 | r.Uint32()&(1<<23-1))
	}
	return x
}

// rowLoops are loops over rows, which the table of loops does not have.
var rowLoops = []loop{
	{name: "col sum", in: 8, run: func(k *Kernels, t [][]float32) []float64 {
		k.ColSum(t[0], joined(t[1:]))
		return nil
	}},
	{name: "layer norm weight grad", in: 12, run: func(k *Kernels, t [][]float32) []float64 {
		k.LayerNormWeightGrad(t[0], t[1], joined(t[2:7]), joined(t[7:12]), []float32{0.5, 1.5, -0.25, 0.75, 0.1, 0.3, 1, 2, 0.7, 0.9})
		return nil
	}},
	{name: "rms norm weight grad", in: 11, run: func(k *Kernels, t [][]float32) []float64 {
		k.RMSNormWeightGrad(t[0], joined(t[1:6]), joined(t[6:11]), []float32{0.5, 1.5, 0.25, 0.75, 0.1})
		return nil
	}},
	{name: "rope", in: 8, run: func(k *Kernels, t [][]float32) []float64 {
		row := joined(t[:6])
		k.RoPE(row, t[6], t[7], 3, false)
		k.RoPE(row, t[7], t[6], 3, true)
		for i := range t[:6] {
			copy(t[i], row[i*len(t[i]):])
		}
		return nil
	}},
}

func joined(rows [][]float32) []float32 {
	var all []float32
	for _, r := range rows {
		all = append(all, r...)
	}
	return all
}

// TestRecorded: the assembly of every architecture gives the bits that AVX2's gave when they
// were recorded, of every loop at every length.
func TestRecorded(t *testing.T) {
	const golden = "testdata/bits.txt"
	for _, k := range Available() {
		if k == &Go {
			continue // it leaves multiply-adds to the compiler
		}
		t.Run(k.Name, func(t *testing.T) {
			var got []string
			for _, l := range append(rowLoops, loops...) {
				h := fnv.New64a()
				r := rand.New(rand.NewPCG(11, 12))
				for _, n := range append(lengths(), 5000) {
					operands := make([][]float32, l.in)
					for j := range operands {
						operands[j] = exactly(r, n)
					}
					for _, v := range l.run(k, operands) {
						fmt.Fprintf(h, "%x ", math.Float64bits(v))
					}
					for _, x := range operands {
						for _, v := range x {
							fmt.Fprintf(h, "%x ", math.Float32bits(v))
						}
					}
				}
				got = append(got, fmt.Sprintf("%s: %016x\n", l.name, h.Sum64()))
			}
			if *update {
				if k.Name != "avx2" {
					t.Skip("only AVX2 is recorded")
				}
				if err := os.WriteFile(golden, []byte(strings.Join(got, "")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.SplitAfter(string(text), "\n")
			if len(want) != len(got)+1 {
				t.Fatalf("%d loops, %d were recorded", len(got), len(want)-1)
			}
			for i, line := range got {
				if line != want[i] {
					t.Errorf("got %swas %s", line, want[i])
				}
			}
		})
	}
}
