package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxRatio bounds a loop's instructions for arm64 by those for AVX2, for the same elements:
// twice is natural with vectors half as wide.
const maxRatio = 2.2

// innerLoop is the first loop of a function that has no other in it.
type innerLoop struct {
	instructions int
	step         int // what an iteration takes from the count that is left
}

func (l innerLoop) perStep() float64 { return float64(l.instructions) / float64(l.step) }

var (
	functionStart = regexp.MustCompile(`^TEXT ·(\w+)\(SB\)`)
	labelLine     = regexp.MustCompile(`^(\w+):$`)
	branchLine    = regexp.MustCompile(`^\t(J\w+|B|B[A-Z]{2}|CBN?Z) +(?:R\d+, )?(\w+)$`)
	countLine     = regexp.MustCompile(`^\t(?:SUBQ|SUBS) +\$(\w+), |^\t(DECQ) `)
)

// innerLoops are those of all functions of a file.
func innerLoops(t *testing.T, text string) map[string]innerLoop {
	t.Helper()
	loops := map[string]innerLoop{}
	name, count, step := "", 0, 0
	at := map[string]int{} // labels of the function, by the instructions before them
	for _, line := range strings.Split(text, "\n") {
		if m := functionStart.FindStringSubmatch(line); m != nil {
			name, count = m[1], 0
			clear(at)
			continue
		}
		if m := labelLine.FindStringSubmatch(line); m != nil {
			at[m[1]] = count
			continue
		}
		if !strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "\t//") {
			continue
		}
		count++
		if m := countLine.FindStringSubmatch(line); m != nil {
			step = 1
			if m[2] == "" {
				s, err := strconv.ParseInt(m[1], 0, 32)
				if err != nil {
					t.Fatal(err)
				}
				step = int(s)
			}
		}
		if m := branchLine.FindStringSubmatch(line); m != nil {
			from, back := at[m[2]]
			if _, found := loops[name]; back && !found {
				loops[name] = innerLoop{count - from, step}
			}
		}
	}
	return loops
}

// TestInstructions prints the instructions of each inner loop beside those of AVX2, and
// holds their ratio. `go test -v -run Instructions .` shows the table.
func TestInstructions(t *testing.T) {
	files, err := generate(kernels())
	if err != nil {
		t.Fatal(err)
	}
	avx2 := func(k neonKernel) string {
		name := k.name + "_avx2_amd64.s"
		if k.name == "pack" {
			name = "pack_amd64.s"
		}
		return string(files[filepath.Join("..", k.pkg, name)])
	}
	compared := 0
	table := fmt.Sprintf("\n%-32s %12s %12s %7s\n", "instructions (for a count of)", "AVX2", "NEON", "ratio")
	for _, k := range neonKernels() {
		wide := innerLoops(t, avx2(k))
		loops := innerLoops(t, string(files[filepath.Join("..", k.pkg, k.name+"_neon_arm64.s")]))
		for _, name := range slices.Sorted(maps.Keys(loops)) {
			narrow := loops[name]
			other, found := wide[strings.Replace(name, "NEON", "AVX2", 1)]
			if !found {
				t.Errorf("%s: no such function for AVX2", name)
				continue
			}
			compared++
			ratio := narrow.perStep() / other.perStep()
			table += fmt.Sprintf("%-32s %6d (%3d) %6d (%3d) %7.2f\n", k.pkg+"."+strings.Replace(name, "NEON", "", 1),
				other.instructions, other.step, narrow.instructions, narrow.step, ratio)
			if !(ratio <= maxRatio) {
				t.Errorf("%s: %d instructions for %d, AVX2 has %d for %d: %.2f times as many, at most %.1f are allowed",
					name, narrow.instructions, narrow.step, other.instructions, other.step, ratio, maxRatio)
			}
		}
	}
	t.Log(table)
	if functions := neonFunctions(); compared != functions {
		t.Errorf("%d of %d functions were compared", compared, functions)
	}
}

func neonFunctions() (count int) {
	for _, k := range neonKernels() {
		n := new(neon)
		k.emit(n)
		count += len(n.functions)
	}
	return count
}
