package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

// convert makes of values another type and back.
func convert(t *testing.T, dtype string, values []float32) ([]float32, error) {
	t.Helper()
	one, err := safetensors.Converted("x", dtype, []int{len(values)}, "F32", safetensors.EncodeFloat32(values))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := one.WriteTo(&out); err != nil {
		return nil, err
	}
	back, err := safetensors.Float32s(dtype, out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return back, nil
}

// TestConverted: every half and every bfloat16 comes back as it was, what lies between two of
// them becomes the nearer one, and of two as near the even one.
func TestConverted(t *testing.T) {
	for _, dtype := range []string{"F16", "BF16"} {
		var all []byte
		for i := range 1 << 16 {
			all = binary.LittleEndian.AppendUint16(all, uint16(i))
		}
		exact, err := safetensors.Float32s(dtype, all)
		if err != nil {
			t.Fatal(err)
		}
		back, err := convert(t, dtype, exact)
		if err != nil {
			t.Fatal(err)
		}
		for i := range exact {
			if exact[i] != exact[i] && back[i] != back[i] {
				continue
			}
			if math.Float32bits(exact[i]) != math.Float32bits(back[i]) {
				t.Fatalf("%s %#x: %g became %g", dtype, i, exact[i], back[i])
			}
		}
		top := 0x7bff // the largest finite
		if dtype == "BF16" {
			top = 0x7f7f
		}
		for i := range top {
			a, b := float64(exact[i]), float64(exact[i+1])
			middle := (a + b) / 2
			values := []float32{float32(middle), float32(a + (b-a)/4), float32(a + (b-a)*3/4)}
			if float64(values[0]) != middle || float64(values[1]) != a+(b-a)/4 {
				continue // below what float32 has
			}
			even := exact[i+i%2]
			got, err := convert(t, dtype, values)
			if err != nil || got[0] != even || got[1] != exact[i] || got[2] != exact[i+1] {
				t.Fatalf("%s between %g and %g: %v, %v", dtype, a, b, got, err)
			}
		}
	}
	if _, err := convert(t, "F16", []float32{1, 65520}); err == nil || !strings.Contains(err.Error(), "element 1 is 65520") {
		t.Errorf("too large: %v", err)
	}
	if got, err := convert(t, "F16", []float32{65519, -65519}); err != nil || got[0] != 65504 || got[1] != -65504 {
		t.Errorf("just not too large: %v, %v", got, err)
	}
}
