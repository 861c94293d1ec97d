package main

import "math"

// dynamicCode is one of the two codes of an optimizer's state in 8 bits (internal/optstate), as the loops compute with it. Let
// x = k + 1.5 for the index k of a value. The values of a decade are those x between 2^e and 2^(e+1), and with d = 10^(e−decades)
//
//	value = d·(0.9·x/2^e − 0.8)
//
// so they need no table of all values: the exponent of x chooses a line. To be rounded as the values are, a line is the sum of two: the
// numbers of the first have few bits, so that it is exact, and the second has what they lack.
type dynamicCode struct {
	name    string
	decades int
	// Of x: steep·x + base, plus steepRest·x + baseRest, by the lowest three bits of the exponent of x. Another two lines have 0, and 1
	// and what is above it; those of the root code share a place.
	steep, base, steepRest, baseRest [8]float32
	// The other way, from a value r to x: the least of rate·r + start of all decades, since each begins where a line meets the next, which
	// is less steep. start is less by 1.5 and a little more, so that the whole part is k or, close to the value of k, k − 1.
	rate, start []float32
}

var signedCode, rootCode = newDynamicCode("Signed", 6), newDynamicCode("Root", 7)

// margin is above the error of x as it is found from a value, and below the distance of two values.
const margin = 1.0 / (1 << 10)

func newDynamicCode(name string, decades int) *dynamicCode {
	c := &dynamicCode{name: name, decades: decades}
	for e := 1; e <= decades; e++ {
		d := 1 / math.Pow10(decades-e)
		_, exponent := math.Frexp(d)
		unit, place := math.Ldexp(1, exponent-23), (e+7)%8
		steep, base := 0.9*d/math.Ldexp(1, e), -0.8*d
		steepFirst, baseFirst := math.Round(steep/unit)*unit, math.Round(base/unit)*unit
		c.steep[place], c.base[place] = float32(steepFirst), float32(baseFirst)
		c.steepRest[place], c.baseRest[place] = float32(steep-steepFirst), float32(base-baseFirst)
		c.rate = append(c.rate, float32(math.Ldexp(1, e)/(0.9*d)))
		c.start = append(c.start, float32(math.Ldexp(0.8, e)/0.9-1.5-margin))
	}
	count := math.Ldexp(1, decades+1) // of the values; x of the last, which is 1, is half above it
	last := decades % 8
	if decades < 7 {
		c.steep[last], c.base[last] = float32(1/count), float32(-0.5/count)
		return c // and the place of 0 has zeros
	}
	// From 1.5, which is 0, to count + 0.5. The rest has few bits, so that 0 is exact.
	rest := float64(math.Float32frombits(math.Float32bits(float32(1/count/(count-1))) &^ 0xf))
	c.steep[last], c.base[last] = float32(1/count), float32(-1.5/count)
	c.steepRest[last], c.baseRest[last] = float32(rest), float32(-1.5*rest)
	return c
}
