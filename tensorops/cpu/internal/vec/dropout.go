package vec

import (
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// Dropout draws the masks of one dropout. Element i of the global batch is kept
// when its word, lane i mod 4 of the random block (step, i div 4), is at least
// P·2³².
type Dropout struct {
	keys      [20]uint32 // of the rounds: ten for each word of the key
	step      uint64
	threshold uint32

	Scale float32 // 1/(1−P), by which the kept are multiplied
}

// NewDropout prepares the mask of a key and a step; 0 ≤ p < 1.
func NewDropout(key rng.Key, step uint64, p float64) Dropout {
	return Dropout{keys: roundKeys(key), step: step, threshold: uint32(p * (1 << 32)), Scale: float32(1 / (1 - p))}
}

// KeepSize is the length of a buffer for the masks of n elements.
func KeepSize(n int) int { return WordsSize(n) }

// Keep returns the masks of n elements from index first on, ones or zeros, as a
// part of buf, which has KeepSize(n) elements or more.
func (k *Kernels) Keep(buf []uint32, d Dropout, first uint64, n int) []uint32 {
	skip := int(first % 4)
	whole := (skip + n + 31) &^ 31
	k.keep(buf[:whole], d.keys, uint32(d.step), uint32(d.step>>32), first/4, d.threshold)
	return buf[skip:][:n]
}

// Drop stores scale·x where keep has ones and 0 elsewhere, plus skip where it is
// not nil.
func (k *Kernels) Drop(y, x []float32, keep []uint32, skip []float32, scale float32) {
	n := len(y)
	if skip == nil {
		k.drop(y, x[:n], keep[:n], scale)
		return
	}
	k.dropAdd(y, x[:n], keep[:n], skip[:n], scale)
}

// keepAll are masks that keep all elements.
var keepAll = func() (keep [2048]uint32) {
	for i := range keep {
		keep[i] = math.MaxUint32
	}
	return keep
}()

// AddScaled stores factor·x, plus skip where it is not nil: a dropout that keeps all.
func (k *Kernels) AddScaled(y, x, skip []float32, factor float32) {
	for at := 0; at < len(y); at += len(keepAll) {
		end := min(at+len(keepAll), len(y))
		var part []float32
		if skip != nil {
			part = skip[at:end]
		}
		k.Drop(y[at:end], x[at:end], keepAll[:end-at], part, factor)
	}
}

func keepGo(keep []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64, threshold uint32) {
	randomGo(keep, keys, stepLow, stepHigh, block)
	for i, w := range keep {
		keep[i] = 0
		if w >= threshold {
			keep[i] = math.MaxUint32
		}
	}
}

func masked(v float32, keep uint32) float32 {
	return math.Float32frombits(math.Float32bits(v) & keep)
}

func dropGo(y, x []float32, keep []uint32, scale float32) {
	for i, v := range x {
		y[i] = masked(v, keep[i]) * scale
	}
}

func dropAddGo(y, x []float32, keep []uint32, skip []float32, scale float32) {
	for i, v := range x {
		y[i] = float32(masked(v, keep[i])*scale) + skip[i]
	}
}
