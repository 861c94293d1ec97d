package count

import (
	"strings"
	"testing"
)

// gelu is a launch of gelu_mixed on n elements, of which the input is bfloat16.
func gelu(n uint64) []uint64 {
	const yAt, xAt, halves = 0x1000, 0x2000, 2
	return []uint64{uint64(Kernel), 11, 1, 77, 4, 1, 1, 256, 32, yAt, xAt, n, halves << 32}
}

func read(t *testing.T, words []uint64) (steps Steps, err error) {
	t.Helper()
	steps.Name = func(uint64) string { return "gelu_mixed" }
	err = steps.Take(words)
	return steps, err
}

func TestLog(t *testing.T) {
	words := append([]uint64{uint64(Idle), 0, uint64(Graph), 1, 1}, gelu(100)...)
	words = append(words, gelu(10)...)
	words = append(words, uint64(In), 3, 0x3000, 8, 1, uint64(Product), 11, 2, 3, 4, 0x1000, 48, 1, 0, 0x2000, 24, 1, 1)
	steps, err := read(t, words)
	if err != nil || len(steps.All) != 1 {
		t.Fatal(steps.All, err)
	}
	s := steps.All[0]
	if s.Turnarounds != 1 || s.Graphs != 1 || s.ToDevice != 8 {
		t.Errorf("%+v", s)
	}
	if l := s.Lines["gelu_mixed"]; l.Launches != 2 || l.Graphed != 1 || l.Read != 220 || l.Written != 440 || l.Group != Activations {
		t.Errorf("%+v", l)
	}
	if l := s.Lines["cuBLASLt"]; l.Read != 72 || l.Written != 24 || l.FLOPs != 48 {
		t.Errorf("%+v", l)
	}
}

func TestLogRefused(t *testing.T) {
	for name, test := range map[string]struct {
		words []uint64
		want  string
	}{
		"cut":      {gelu(1)[:9], "are left"},
		"kind":     {[]uint64{99, 0}, "kind 99"},
		"short":    {[]uint64{uint64(Within), 1, 2}, "want 3 or more"},
		"argument": {gelu(1), "bring the table up to date"},
	} {
		if name == "argument" {
			test.words[8] = 24
		}
		if _, err := read(t, test.words); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	var steps Steps
	steps.Name = func(uint64) string { return "new" }
	if err := steps.Take(gelu(1)); err == nil || !strings.Contains(err.Error(), "add what it reads and writes") {
		t.Errorf("a kernel that is not in the table: %v", err)
	}
}

func TestCompare(t *testing.T) {
	row := Operand{At: 1000, Rows: 2, RowBytes: 8, Stride: 16}
	gathered := Operand{At: 1000, Rows: 1, RowBytes: 8, Use: Gathered, Of: 100}
	for name, test := range map[string]struct {
		reads  []Operand
		loaded []Run
		want   string
	}{
		"whole":           {[]Operand{row}, []Run{{1000, 8, 1}, {1016, 8, 1}}, ""},
		"part":            {[]Operand{row}, []Run{{1000, 8, 1}}, "8 of 16 bytes"},
		"between":         {[]Operand{row}, []Run{{1000, 12, 1}, {1016, 8, 1}}, "none of its operands"},
		"behind":          {[]Operand{row}, []Run{{1000, 8, 1}, {1016, 9, 1}}, "none of its operands"},
		"twice":           {[]Operand{row}, []Run{{1000, 8, 2}, {1016, 8, 1}}, "want once"},
		"twice, as said":  {[]Operand{row.again()}, []Run{{1000, 8, 2}, {1016, 8, 1}}, ""},
		"as two operands": {[]Operand{row, row}, []Run{{1000, 8, 2}, {1016, 8, 2}}, ""},
		"none":            {[]Operand{row.some()}, nil, ""},
		"gathered":        {[]Operand{gathered}, []Run{{1040, 4, 2}}, ""},
		"gathered less":   {[]Operand{gathered}, []Run{{1040, 4, 1}}, "4 bytes of 8"},
		"beside gathered": {[]Operand{gathered, row}, []Run{{1000, 8, 1}, {1016, 8, 1}, {1040, 8, 1}}, ""},
	} {
		err := Compare(&Cost{Reads: test.reads}, test.loaded, nil)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestShape holds parameters and the floor to figures that are known otherwise.
func TestShape(t *testing.T) {
	s := Shape{Layers: 12, C: 768, Heads: 12, V: 50257, B: 16, T: 1024, ResidualBytes: 2}
	if p := s.Parameters(); p != 124439808 { // as every description of GPT-2 small says
		t.Errorf("%d parameters", p)
	}
	if bytes := Total(Floor(s)); bytes < 20e9 || bytes > 23e9 {
		t.Errorf("a floor of %d bytes", bytes)
	}
}
