package safetensors

import (
	"math"
	"strings"
	"testing"
)

// TestMXFP4: every code has its value, in the order of transformers (integrations/mxfp4.py: FP4_VALUES), at every scale.
func TestMXFP4(t *testing.T) {
	want := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
	codes := make([]byte, 16)
	for i := range codes {
		codes[i] = byte(2*i%16 | (2*i+1)%16<<4)
	}
	for scale := range 253 { // 2^126·6 exceeds float32
		got := make([]float32, 32)
		if err := DecodeMXFP4(got, codes, []byte{byte(scale)}, 0); err != nil {
			t.Fatal(err)
		}
		for i, v := range got {
			if w := math.Ldexp(want[i%16], scale-127); float64(v) != w {
				t.Fatalf("code %d with scale %d is %g, want %g", i%16, scale, v, w)
			}
		}
		if !math.Signbit(float64(got[8])) {
			t.Fatal("the eighth code is not -0")
		}
	}
	// A part of two blocks.
	got := make([]float32, 3)
	if err := DecodeMXFP4(got, append(codes, codes...), []byte{127, 129}, 31); err != nil || got[0] != -6 || got[1] != 0 || got[2] != 2 {
		t.Errorf("%v, %v", got, err)
	}
}

// TestMXFP4Refuses: wrong lengths and numbers that are none.
func TestMXFP4Refuses(t *testing.T) {
	codes := make([]byte, 16)
	codes[2] = 0x70
	for _, c := range []struct {
		n, first int
		codes    []byte
		scales   []byte
		want     string
	}{
		{1, 0, codes[:15], []byte{1}, "15 bytes of codes for 1 scales"},
		{1, 0, codes, nil, "16 bytes of codes for 0 scales"},
		{33, 0, codes, []byte{1}, "numbers 0 to 33 do not exist; there are 32"},
		{1, -1, codes, []byte{1}, "do not exist"},
		{2, 31, codes, []byte{1}, "do not exist"},
		{32, 0, codes, []byte{255}, "the scale of block 0 is 255"},
		{32, 0, codes, []byte{254}, "number 5 has the scale 2^127"},
	} {
		err := DecodeMXFP4(make([]float32, c.n), c.codes, c.scales, c.first)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// FuzzMXFP4: any bytes are decoded to finite numbers, the same in parts, or refused.
func FuzzMXFP4(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"), []byte{127, 3}, 5, 40)
	f.Add([]byte{}, []byte{255}, -1, 0)
	f.Fuzz(func(t *testing.T, codes, scales []byte, first, n int) {
		if n < 0 || n > 1<<12 {
			return
		}
		into := make([]float32, n)
		if DecodeMXFP4(into, codes, scales, first) != nil {
			return
		}
		for i, v := range into {
			var one [1]float32
			if err := DecodeMXFP4(one[:], codes, scales, first+i); err != nil || one[0] != v || math.IsInf(float64(v), 0) || v != v {
				t.Fatalf("number %d is %g alone, %g among others, %v", first+i, one[0], v, err)
			}
		}
	})
}
