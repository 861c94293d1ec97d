package cpu_test

import (
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, threads int, path string) tensorops.Device {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: threads, Kernels: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// paths are those that this machine has; under the race detector the best alone, since
// races don't depend on the kernels.
func paths() []string {
	if raceDetector {
		return cpu.Paths()[:1]
	}
	return cpu.Paths()
}

// Every kernel path this machine has, against the float64 oracle. Under the race detector
// only what is promised of errors and streams: TestDeterministic runs every case there, on
// several threads and beside others, and the oracle would take most of the time.
func TestOps(t *testing.T) {
	oracle := new(optest.Oracle)
	for _, path := range paths() {
		t.Run(path, func(t *testing.T) {
			optest.Run(t, open(t, 2, path), optest.Options{Oracle: oracle, Skip: func(optest.Case) bool { return raceDetector }})
		})
	}
}

// The number of threads and what else runs change no bit.
func TestDeterministic(t *testing.T) {
	for _, path := range paths() {
		t.Run(path, func(t *testing.T) {
			cases := 0
			skip := func(optest.Case) bool {
				cases++
				return path == "go" && cases%3 > 0 // its ranges are those of the others, and it is slow
			}
			optest.Deterministic(t, func(threads int) tensorops.Device { return open(t, threads, path) }, optest.Options{Skip: skip})
		})
	}
}

// TestSums: the loops of collectives give the bits of plain Go, of numbers of every kind.
func TestSums(t *testing.T) {
	const n = 1000
	wide, half := make([]float32, n), make([]uint16, n)
	var operands [cpu.MostOperands][]float32
	for k := range operands {
		operands[k] = make([]float32, n)
		for i := range n {
			operands[k][i] = math.Float32frombits(uint32((i+k*n/3)%n) * 4294967)
		}
	}
	for count := 2; count <= len(operands); count++ {
		for _, past := range []bool{false, true} {
			sum := make([]float32, n)
			cpu.Sum(sum, past, operands[:count]...)
			for i := range n {
				want := operands[0][i]
				for _, x := range operands[1:count] {
					want += x[i]
				}
				if got := sum[i]; math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
					t.Errorf("the sum of %d, past the caches %v, is %v at %d, not %v", count, past, got, i, want)
				}
			}
		}
	}
	a := operands[0]
	cpu.Round(half, a)
	cpu.Widen(wide, half)
	for i := range n {
		if want := tensorops.ToBFloat16(a[i]); half[i] != want {
			t.Errorf("%v is rounded to %04x, not %04x", a[i], half[i], want)
		}
		if want := tensorops.FromBFloat16(half[i]); math.Float32bits(wide[i]) != math.Float32bits(want) {
			t.Errorf("%04x is %v, not %v", half[i], wide[i], want)
		}
	}
}
