package bench

import (
	"errors"
	"testing"

	"github.com/troupe-ml/troupe/tensorops/cpu"
)

func TestParseShape(t *testing.T) {
	for _, c := range []struct {
		text string
		want Shape
	}{
		{"1x1x1", Shape{1, 1, 1}},
		{"256x50257x768", Shape{256, 50257, 768}},
		{"", Shape{}},
		{"1x2", Shape{}},
		{"1x2x3x4", Shape{}},
		{"0x1x1", Shape{}},
		{"-1x1x1", Shape{}},
		{"1x1x1 ", Shape{}},
		{"1e3x1x1", Shape{}},
		{"16385x16384x1", Shape{}},
		{"99999999999999999999x1x1", Shape{}},
	} {
		got, err := ParseShape(c.text)
		if got != c.want || errors.Is(err, ErrInput) != (c.want == Shape{}) {
			t.Errorf("ParseShape(%q) = %v, %v, want %v", c.text, got, err, c.want)
		}
	}
}

// What is understood is written as it was read, and fits.
func FuzzParseShape(f *testing.F) {
	for _, seed := range []string{"1x1x1", "256x768x768", "x", "1xx1", "+1x1x1", "268435456x1x1", "16384x16384x16385"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseShape(text)
		if err != nil {
			if !errors.Is(err, ErrInput) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := ParseShape(s.String())
		if err != nil || again != s {
			t.Errorf("%q is %v, and that is %v, %v", text, s, again, err)
		}
		if s.M*s.N > LimitElements || s.M*s.K > LimitElements || s.N*s.K > LimitElements || s.FLOPs() <= 0 {
			t.Errorf("%q is %v, which is too large", text, s)
		}
	})
}

func TestProducts(t *testing.T) {
	p, err := NewProducts(cpu.Options{Threads: 2, Kernels: "go"}, "float32")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, form := range Forms() {
		r, err := p.Measure(t.Context(), Shape{5, 6, 7}, form, 1e-9)
		if err != nil {
			t.Fatal(err)
		}
		if r.Shape != "5x6x7" || r.Form != form || r.Threads != 2 || r.Kernels != "go" || r.DType != "float32" || r.MS.Samples != leastSamples ||
			r.GFLOPS.Median <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if _, err := p.Measure(t.Context(), Shape{1, 1, 1}, "tt", 1); !errors.Is(err, ErrInput) {
		t.Errorf("the form tt: %v", err)
	}
	if _, err := NewProducts(cpu.Options{Kernels: "abacus"}, "float32"); !errors.Is(err, cpu.ErrKernels) {
		t.Errorf("the kernels abacus: %v", err)
	}
}
