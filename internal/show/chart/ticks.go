package chart

import (
	"math"
	"strconv"
)

// ticks returns about n round numbers on a scale.
func (s *scale) ticks(n int) []float64 {
	if s.log {
		if decades := math.Log10(s.high) - math.Log10(s.low); decades > 1 {
			return s.powers(int(math.Ceil(decades / float64(n+1))))
		}
	}
	step := round((s.high - s.low) / float64(n))
	var all []float64
	for k := math.Ceil(s.low / step); k*step <= s.high && len(all) <= 3*n; k++ {
		v := k * step
		if v == 0 {
			v = 0 // avoids −0
		}
		all = append(all, v)
	}
	return all
}

// powers returns powers of ten, some decades apart, or with numbers between them if there are few.
func (s *scale) powers(apart int) []float64 {
	between := []float64{1}
	if math.Log10(s.high)-math.Log10(s.low) < 2.5 {
		between = []float64{1, 2, 5}
	}
	var all []float64
	for e := int(math.Floor(math.Log10(s.low))); e <= int(math.Ceil(math.Log10(s.high))); e++ {
		for _, m := range between {
			if v := m * math.Pow10(e); v >= s.low && v <= s.high && e%apart == 0 {
				all = append(all, v)
			}
		}
	}
	return all
}

// round returns the next of 1, 2 and 5 times a power of ten.
func round(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= step*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// number formats a number in a few characters.
func number(v float64) string {
	switch a := math.Abs(v); {
	case !finite(v):
		return "NaN"
	case a >= 1e15 || a > 0 && a < 1e-4:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case a >= 1e4:
		unit, text := 1e3, "k"
		for _, u := range []struct {
			size float64
			text string
		}{{1e6, "M"}, {1e9, "G"}, {1e12, "T"}} {
			if a >= u.size {
				unit, text = u.size, u.text
			}
		}
		return strconv.FormatFloat(significant(v/unit), 'f', -1, 64) + text
	}
	return strconv.FormatFloat(significant(v), 'f', -1, 64)
}

// significant rounds to four digits, or to an integer if that has more.
func significant(v float64) float64 {
	if v == 0 || math.Abs(v) >= 1000 {
		return math.Round(v)
	}
	digits := 3 - int(math.Floor(math.Log10(math.Abs(v))))
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}
