package samples

import (
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// A number is what strconv takes it for, and NaN and what is infinite are none.
func TestParseNumber(t *testing.T) {
	for _, text := range []string{"", "-", "+", "-0", "0", "007", "1e5", "1_0", "0x10", "NaN", "-Inf", "999999999999999", "9999999999999999",
		"-1.5", " 1", "1e999"} {
		checkNumber(t, text)
	}
	rapid.Check(t, func(t *rapid.T) {
		checkNumber(t, rapid.StringMatching(`-?[0-9]{0,20}(\.[0-9]{0,3})?`).Draw(t, "text"))
	})
}

func checkNumber(t rapid.TB, text string) {
	want, err := strconv.ParseFloat(text, 64)
	wantOK := err == nil && !math.IsNaN(want) && !math.IsInf(want, 0)
	if v, ok := parseNumber(text); ok != wantOK || ok && math.Float64bits(v) != math.Float64bits(want) {
		t.Errorf("%q is %g, %v, want %g, %v", text, v, ok, want, wantOK)
	}
}
