package samples

import (
	"math"
	"strconv"
)

// parseNumber reads a finite number.
func parseNumber[T string | []byte](text T) (v float64, ok bool) {
	if v, ok = wholeNumber(text); ok {
		return v, true
	}
	v, err := strconv.ParseFloat(string(text), 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// wholeNumber reads an integer, the most common case, without an allocation.
func wholeNumber[T string | []byte](text T) (v float64, ok bool) {
	const exactDigits = 15
	begin := 0
	if len(text) > 0 && text[0] == '-' {
		begin = 1
	}
	if n := len(text) - begin; n < 1 || n > exactDigits {
		return 0, false
	}
	for i := begin; i < len(text); i++ {
		c := text[i]
		if c < '0' || c > '9' {
			return 0, false
		}
		v = 10*v + float64(c-'0')
	}
	if begin > 0 {
		v = -v
	}
	return v, true
}

// scaled returns a feature times a factor, rounded to the precision of a field; ok reports whether
// it is in range.
func scaled(v, factor float64) (f float32, ok bool) {
	f = float32(v * factor)
	return f, !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0)
}
