package vec

import "github.com/troupe-ml/troupe/internal/optstate"

// Kernels is one path's loops. The methods check lengths, and say what the
// fields of the same names do; the loops themselves trust them.
type Kernels struct {
	Name string // "go", "neon", "avx2", "avx512" or "avx512bf16"

	exp, tanh        func(dst, src []float32)
	gelu             func(y, x []float32)
	geluGrad         func(dx, dy, x []float32)
	swiglu           func(y, gate, up []float32)
	swigluGrad       func(dgate, dup, dy, gate, up []float32)
	gates            [numGates]gateLoop
	gateGrads        [numGates]gateGradLoop
	gateClamped      func(y, gate, up []float32, limit, alpha float32)
	gateClampedGrad  func(dgate, dup, dy, gate, up []float32, limit, alpha float32)
	softCap          func(y, x []float32, limit, inverse float32)
	softCapGrad      func(dx, dy, x []float32, inverse float32)
	add              func(dst, a, b []float32)
	addThree         func(dst, a, b, c []float32)
	addFour          func(dst, a, b, c, d []float32)
	addPast          func(dst, a, b []float32) // dst at a multiple of 64 bytes, of a multiple of 16 elements, not none
	addThreePast     func(dst, a, b, c []float32)
	addFourPast      func(dst, a, b, c, d []float32)
	colSum           func(sum, x []float32) // four rows
	max              func(x []float32) float32
	sumExp           func(x []float32, top float32) float32
	crossEntropyGrad func(dst, src []float32, top, rest, scale float32)

	moments                 func(x []float32, shift float32) (sum, squares float64)
	squares                 func(x []float32) float64
	normalise               func(y, x, gamma []float32, mean, rstd float32)
	normaliseAdd            func(y, x, gamma, beta []float32, mean, rstd float32)
	normSums                func(dy, x, gamma []float32, mean float32) (sum, dot float32)
	normGrad                func(dx, dy, x, gamma []float32, mean, rstd, a, b float32)
	normGradAdd             func(dx, dy, x, gamma, skip []float32, mean, rstd, a, b float32)
	layerNormWeightGradOne  func(dgamma, dbeta, dy, x, stats []float32)
	layerNormWeightGradFour func(dgamma, dbeta, dy, x, stats []float32)
	rmsNormWeightGradOne    func(dgamma, dy, x, stats []float32)
	rmsNormWeightGradFour   func(dgamma, dy, x, stats []float32)

	rope    func(a, b *float32, cos, sin []float32, heads, stride int)
	keep    func(keep []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64, threshold uint32)
	random  func(words []uint32, keys [20]uint32, stepLow, stepHigh uint32, block uint64)
	drop    func(y, x []float32, keep []uint32, scale float32)
	dropAdd func(y, x []float32, keep []uint32, skip []float32, scale float32)

	adamW       func(w, m, v, g []float32, b1, nb1, b2, nb2, keep, rate, root, eps, scale float32, clear bool)
	sgd         func(w, g []float32, rate, decay, scale float32)
	sgdMomentum func(w, m, g []float32, rate, momentum, decay, scale float32)

	// These take multiples of 32 elements; the methods do the rest.
	toBF16    func(dst []uint16, src []float32)
	fromBF16  func(dst []float32, src []uint16)
	roundBF16 func(dst, src []float32)
	flushes   bool // toBF16 takes numbers below 2^-126 for zero

	// An optimizer's state; all but largest take multiples of 32 elements, too.
	roundHalves              func(dst []uint16, src []float32, halves []uint16)
	largest                  func(x []float32) uint32
	encodeSigned, encodeRoot func(codes []byte, x []float32, halves []uint16, scale float32)
	decodeSigned, decodeRoot func(x []float32, codes []byte, scale float32)
}

// Go is the path that every processor can run.
var Go = Kernels{
	Name: "go",

	exp: expGo, tanh: tanhGo,
	gelu: geluGo, geluGrad: geluGradGo, swiglu: swigluGo, swigluGrad: swigluGradGo,
	gates: goGateLoops(), gateGrads: goGateGradLoops(), gateClamped: clampedGateGo, gateClampedGrad: clampedGateGradGo,
	softCap: softCapGo, softCapGrad: softCapGradGo,
	add: addGo, addThree: addThreeGo, addFour: addFourGo, addPast: addGo, addThreePast: addThreeGo, addFourPast: addFourGo,
	colSum: colSumGo,
	max:    maxGo, sumExp: sumExpGo, crossEntropyGrad: crossEntropyGradGo,

	moments: momentsGo, squares: squaresGo, normalise: normaliseGo, normaliseAdd: normaliseAddGo,
	normSums: normSumsGo, normGrad: normGradGo, normGradAdd: normGradAddGo,
	layerNormWeightGradOne: layerNormWeightGradGo, layerNormWeightGradFour: layerNormWeightGradGo,
	rmsNormWeightGradOne: rmsNormWeightGradGo, rmsNormWeightGradFour: rmsNormWeightGradGo,

	rope: ropeGo, keep: keepGo, random: randomGo, drop: dropGo, dropAdd: dropAddGo,
	adamW: adamWGo, sgd: sgdGo, sgdMomentum: sgdMomentumGo,
	toBF16: toBF16Go, fromBF16: fromBF16Go, roundBF16: roundBF16Go,
	roundHalves: optstate.RoundBF16, largest: optstate.Largest,
	encodeSigned: encodeSignedGo, encodeRoot: encodeRootGo, decodeSigned: decodeSignedGo, decodeRoot: decodeRootGo,
}
