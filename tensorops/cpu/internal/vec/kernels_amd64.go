package vec

import "golang.org/x/sys/cpu"

// AVX2 needs AVX2 and FMA.
var AVX2 = Kernels{
	Name: "avx2",

	exp: expAVX2, tanh: tanhAVX2,
	gelu: geluAVX2, geluGrad: geluGradAVX2, swiglu: swigluAVX2, swigluGrad: swigluGradAVX2,
	gates:       [numGates]gateLoop{gateGELUAVX2, gateExactGELUAVX2, gateReLU2AVX2, gateSigmoidAVX2},
	gateGrads:   [numGates]gateGradLoop{gateGELUGradAVX2, gateExactGELUGradAVX2, gateReLU2GradAVX2, gateSigmoidGradAVX2},
	gateClamped: gateClampedAVX2, gateClampedGrad: gateClampedGradAVX2,
	softCap: softCapAVX2, softCapGrad: softCapGradAVX2,
	add: addAVX2, addThree: addThreeAVX2, addFour: addFourAVX2,
	addPast: addPastAVX2, addThreePast: addThreePastAVX2, addFourPast: addFourPastAVX2,
	colSum: colSumAVX2, max: maxAVX2, sumExp: sumExpAVX2,
	crossEntropyGrad: crossEntropyGradAVX2,

	moments: momentsAVX2, squares: squaresAVX2, normalise: normaliseAVX2, normaliseAdd: normaliseAddAVX2,
	normSums: normSumsAVX2, normGrad: normGradAVX2, normGradAdd: normGradAddAVX2,
	layerNormWeightGradOne:  layerNormWeightGradOneAVX2,
	layerNormWeightGradFour: layerNormWeightGradFourAVX2,
	rmsNormWeightGradOne:    rmsNormWeightGradOneAVX2,
	rmsNormWeightGradFour:   rmsNormWeightGradFourAVX2,

	rope: ropeAVX2, keep: keepAVX2, random: randomAVX2, drop: dropAVX2, dropAdd: dropAddAVX2,
	adamW: adamWAVX2, sgd: sgdAVX2, sgdMomentum: sgdMomentumAVX2,
	toBF16: toBF16AVX2, fromBF16: fromBF16AVX2, roundBF16: roundBF16AVX2,
	roundHalves: roundHalvesAVX2, largest: largestAVX2,
	encodeSigned: encodeSignedAVX2, encodeRoot: encodeRootAVX2, decodeSigned: decodeSignedAVX2, decodeRoot: decodeRootAVX2,
}

// AVX512 needs AVX-512 F, BW, DQ and VL, and BMI2.
var AVX512 = Kernels{
	Name: "avx512",

	exp: expAVX512, tanh: tanhAVX512,
	gelu: geluAVX512, geluGrad: geluGradAVX512, swiglu: swigluAVX512, swigluGrad: swigluGradAVX512,
	gates:       [numGates]gateLoop{gateGELUAVX512, gateExactGELUAVX512, gateReLU2AVX512, gateSigmoidAVX512},
	gateGrads:   [numGates]gateGradLoop{gateGELUGradAVX512, gateExactGELUGradAVX512, gateReLU2GradAVX512, gateSigmoidGradAVX512},
	gateClamped: gateClampedAVX512, gateClampedGrad: gateClampedGradAVX512,
	softCap: softCapAVX512, softCapGrad: softCapGradAVX512,
	add: addAVX512, addThree: addThreeAVX512, addFour: addFourAVX512,
	addPast: addPastAVX512, addThreePast: addThreePastAVX512, addFourPast: addFourPastAVX512,
	colSum: colSumAVX512, max: maxAVX512, sumExp: sumExpAVX512,
	crossEntropyGrad: crossEntropyGradAVX512,

	moments: momentsAVX512, squares: squaresAVX512, normalise: normaliseAVX512, normaliseAdd: normaliseAddAVX512,
	normSums: normSumsAVX512, normGrad: normGradAVX512, normGradAdd: normGradAddAVX512,
	layerNormWeightGradOne:  layerNormWeightGradOneAVX512,
	layerNormWeightGradFour: layerNormWeightGradFourAVX512,
	rmsNormWeightGradOne:    rmsNormWeightGradOneAVX512,
	rmsNormWeightGradFour:   rmsNormWeightGradFourAVX512,

	rope: ropeAVX512, keep: keepAVX512, random: randomAVX512, drop: dropAVX512, dropAdd: dropAddAVX512,
	adamW: adamWAVX512, sgd: sgdAVX512, sgdMomentum: sgdMomentumAVX512,
	toBF16: toBF16AVX512, fromBF16: fromBF16AVX512, roundBF16: roundBF16AVX512,
	roundHalves: roundHalvesAVX512, largest: largestAVX512,
	encodeSigned: encodeSignedAVX512, encodeRoot: encodeRootAVX512, decodeSigned: decodeSignedAVX512, decodeRoot: decodeRootAVX512,
}

// AVX512BF16 is AVX512 on a processor that has AVX-512 BF16 too. It differs in what rounds to
// bfloat16, which takes numbers below 2^-126 for zero.
var AVX512BF16 = func() Kernels {
	k := AVX512
	k.Name, k.toBF16, k.flushes = "avx512bf16", toBF16AVX512BF16, true
	return k
}()

// Available lists the paths this processor can run, best first.
func Available() []*Kernels {
	var ks []*Kernels
	x := &cpu.X86
	if x.HasAVX2 && x.HasFMA && x.HasBMI2 && x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL {
		if x.HasAVX512BF16 {
			ks = append(ks, &AVX512BF16)
		}
		ks = append(ks, &AVX512)
	}
	if x.HasAVX2 && x.HasFMA {
		ks = append(ks, &AVX2)
	}
	return append(ks, &Go)
}
