// Package points reads, writes and checks a table of points: pairs of a step and a learning rate, with a line between each two.
// Configurations have it as a list, and the journal of a run as a text such as "1:0.001 500:0.0005".
//
// The package must not know what a rate is for.
package points

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Most is the largest number of points.
const Most = 64

// Check returns an error unless there is a point, their steps are whole numbers from 1 to maxStep in ascending order, and their rates are
// from 0 to maxRate, at least one of them above 0.
func Check(all [][2]float64, maxStep, maxRate float64) error {
	if len(all) == 0 {
		return errors.New("there are no points")
	}
	if len(all) > Most {
		return fmt.Errorf("there are %d points, but the limit is %d", len(all), Most)
	}
	for i, p := range all {
		switch step, rate := p[0], p[1]; {
		case step != math.Trunc(step) || !(step >= 1 && step <= maxStep):
			return fmt.Errorf("point %d has the step %g: use whole steps from 1 to %.0f", i+1, step, maxStep)
		case i > 0 && step <= all[i-1][0]:
			return fmt.Errorf("point %d has the step %.0f after step %.0f: give the points in the order of their steps", i+1, step,
				all[i-1][0])
		case !(rate >= 0 && rate <= maxRate):
			return fmt.Errorf("point %d has the rate %g: use 0 to %g", i+1, rate, maxRate)
		}
	}
	if Peak(all) == 0 {
		return errors.New("all rates are 0: give at least one above 0")
	}
	return nil
}

// Peak returns the largest rate.
func Peak(all [][2]float64) (peak float64) {
	for _, p := range all {
		peak = max(peak, p[1])
	}
	return peak
}

// Least returns the smallest rate; 0 without points.
func Least(all [][2]float64) float64 {
	least := Peak(all)
	for _, p := range all {
		least = min(least, p[1])
	}
	return least
}

// At returns the rate of a step: on the line between the two points around it, and that of the first or last point outside of them.
func At(all [][2]float64, step float64) float64 {
	if len(all) == 0 {
		return 0
	}
	for i, p := range all {
		switch {
		case step > p[0]:
		case i == 0 || step == p[0]:
			return p[1]
		default:
			from := all[i-1]
			return from[1] + (p[1]-from[1])*(step-from[0])/(p[0]-from[0])
		}
	}
	return all[len(all)-1][1]
}

// Format writes points as a text; "": there are none.
func Format(all [][2]float64) string {
	words := make([]string, len(all))
	for i, p := range all {
		words[i] = fmt.Sprintf("%.0f:%s", p[0], strconv.FormatFloat(p[1], 'g', -1, 64))
	}
	return strings.Join(words, " ")
}

// maxTextBytes is the length of a text of the most points.
const maxTextBytes = Most * 64

// Parse reads what Format wrote, and checks the numbers by themselves.
func Parse(text string) ([][2]float64, error) {
	if len(text) > maxTextBytes {
		return nil, fmt.Errorf("the points have %d bytes, but the limit is %d", len(text), maxTextBytes)
	}
	var all [][2]float64
	for word := range strings.FieldsSeq(text) {
		step, rate, found := strings.Cut(word, ":")
		var p [2]float64
		var err error
		if p[0], err = strconv.ParseFloat(step, 64); err == nil && found {
			p[1], err = strconv.ParseFloat(rate, 64)
		}
		if err != nil || !found {
			return nil, fmt.Errorf("%.64q is not a point: write STEP:RATE", word)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, Check(all, math.MaxInt32, math.MaxFloat64)
}
