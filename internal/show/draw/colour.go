package draw

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/scheduler"
)

// colour is red, green and blue, each from 0 to 255.
type colour [3]float64

func (c colour) String() string {
	return fmt.Sprintf("#%02x%02x%02x", int(math.Round(c[0])), int(math.Round(c[1])), int(math.Round(c[2])))
}

// ramp holds the colors of a type for the first and the last chunk of a rank.
type ramp struct{ first, last colour }

// The palette uses blue, green and yellow-orange, which remain distinct for color-blind readers. All shades are light
// enough for dark numbers and dark enough to be seen on white.
var ramps = map[scheduler.Type]ramp{
	scheduler.F: {colour{50, 126, 242}, colour{148, 184, 250}},
	scheduler.I: {colour{32, 194, 174}, colour{180, 242, 230}},
	scheduler.B: {colour{56, 184, 118}, colour{176, 240, 204}},
	scheduler.W: {colour{208, 134, 16}, colour{252, 216, 116}},
}

// Exchanges of tokens have no shades: a dispatch and a combine, of whatever pass, differ from each other and from all
// shades of the types.
var (
	dispatchColour = colour{255, 252, 180}
	combineColour  = colour{147, 117, 171}
)

// exchangeColours are the colors of the exchanges of tokens.
var exchangeColours = map[scheduler.Type]colour{
	scheduler.FD: dispatchColour, scheduler.FC: combineColour, scheduler.BD: dispatchColour, scheduler.BC: combineColour,
}

// ink is the color of numbers in boxes, on light and dark pages.
var ink = colour{16, 20, 26}

// shades returns the number of shades for the chunks of a chart.
func shades(chunks int) int { return max(1, min(chunks, maxShades)) }

// shade returns the shade of a chunk.
func shade(chunk, chunks int) int {
	if chunks <= maxShades {
		return chunk
	}
	return chunk * maxShades / chunks
}

// fill returns the color of a type in one of n shades.
func (t ramp) fill(shade, shades int) colour {
	var c colour
	part := 0.0
	if shades > 1 {
		part = float64(shade) / float64(shades-1)
	}
	for i := range c {
		c[i] = t.first[i] + part*(t.last[i]-t.first[i])
	}
	return c
}
