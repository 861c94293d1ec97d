package vec

// NEON needs nothing: every arm64 processor has it.
var NEON = Kernels{
	Name: "neon",

	exp: expNEON, tanh: tanhNEON,
	gelu: geluNEON, geluGrad: geluGradNEON, swiglu: swigluNEON, swigluGrad: swigluGradNEON,
	gates:       [numGates]gateLoop{gateGELUNEON, gateExactGELUNEON, gateReLU2NEON, gateSigmoidNEON},
	gateGrads:   [numGates]gateGradLoop{gateGELUGradNEON, gateExactGELUGradNEON, gateReLU2GradNEON, gateSigmoidGradNEON},
	gateClamped: gateClampedNEON, gateClampedGrad: gateClampedGradNEON,
	softCap: softCapNEON, softCapGrad: softCapGradNEON,
	add: addNEON, addThree: addThreeNEON, addFour: addFourNEON,
	addPast: addPastNEON, addThreePast: addThreePastNEON, addFourPast: addFourPastNEON,
	colSum: colSumNEON, max: maxNEON, sumExp: sumExpNEON,
	crossEntropyGrad: crossEntropyGradNEON,

	moments: momentsNEON, squares: squaresNEON, normalise: normaliseNEON, normaliseAdd: normaliseAddNEON,
	normSums: normSumsNEON, normGrad: normGradNEON, normGradAdd: normGradAddNEON,
	layerNormWeightGradOne:  layerNormWeightGradOneNEON,
	layerNormWeightGradFour: layerNormWeightGradFourNEON,
	rmsNormWeightGradOne:    rmsNormWeightGradOneNEON,
	rmsNormWeightGradFour:   rmsNormWeightGradFourNEON,

	rope: ropeNEON, keep: keepNEON, random: randomNEON, drop: dropNEON, dropAdd: dropAddNEON,
	adamW: adamWNEON, sgd: sgdNEON, sgdMomentum: sgdMomentumNEON,
	toBF16: toBF16NEON, fromBF16: fromBF16NEON, roundBF16: roundBF16NEON,
	roundHalves: roundHalvesNEON, largest: largestNEON,
	encodeSigned: encodeSignedNEON, encodeRoot: encodeRootNEON, decodeSigned: decodeSignedGo, decodeRoot: decodeRootGo,
}

// Available lists the paths this processor can run, best first.
func Available() []*Kernels { return []*Kernels{&NEON, &Go} }
