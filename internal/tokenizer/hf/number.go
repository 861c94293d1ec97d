package hf

import (
	"math"
	"strconv"
	"strings"
	"sync"
)

// powers has the powers of ten that a float64 can have.
var powers = sync.OnceValue(func() (all [309]float64) {
	for i := range all {
		all[i], _ = strconv.ParseFloat("1e"+strconv.Itoa(i), 64) // it is a number
	}
	return all
})

// looseFloat reads a number of JSON as the library does: its digits, as far as 64 bits hold them, times
// a power of ten or over one. That may be another number than the nearest one, and which of two paths
// through a word is better may depend on it. false: it is too large.
func looseFloat(text string) (float64, bool) {
	text, negative := strings.CutPrefix(text, "-")
	var digits uint64
	exponent, at := int64(0), 0
	add := func() bool {
		d := uint64(text[at] - '0')
		if digits > (math.MaxUint64-d)/10 {
			return false
		}
		digits = digits*10 + d
		return true
	}
	digit := func() bool { return at < len(text) && text[at] >= '0' && text[at] <= '9' }
	for full := false; digit(); at++ {
		if full = full || !add(); full {
			exponent++
		}
	}
	if at < len(text) && text[at] == '.' {
		at++
		for full := false; digit(); at++ {
			if full = full || !add(); !full {
				exponent--
			}
		}
	}
	if at < len(text) && (text[at] == 'e' || text[at] == 'E') {
		by, err := strconv.ParseInt(text[at+1:], 10, 32)
		if err != nil { // it does not fit
			if digits != 0 && text[at+1] != '-' {
				return 0, false
			}
			digits = 0
		}
		exponent += by
	}
	f := float64(digits)
	for ; exponent < -308 && f != 0; exponent += 308 {
		f /= 1e308
	}
	switch {
	case f == 0:
	case exponent > 308:
		return 0, false
	case exponent >= 0:
		f *= powers()[exponent]
	default:
		f /= powers()[-exponent]
	}
	if negative {
		f = -f
	}
	return f, !math.IsInf(f, 0)
}
