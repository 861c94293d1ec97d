package main

import "github.com/mmcloughlin/avo/build"

// vecKernels lists the vectorised loops, each for both widths.
func vecKernels() []kernel {
	var ks []kernel
	for _, k := range []struct {
		name string
		doc  string
		emit func(a *isa)
	}{
		{"exp", expDoc, vecExp},
		{"tanh", tanhDoc, vecTanh},
		{"gelu", geluDoc, vecGELU},
		{"gelu_grad", geluGradDoc, vecGELUGrad},
		{"swiglu", swigluDoc, vecSwiGLU},
		{"swiglu_grad", swigluGradDoc, vecSwiGLUGrad},
		{"gate", gateDoc, vecGate},
		{"gate_grad", gateGradDoc, vecGateGrad},
		{"soft_cap", softCapDoc, vecSoftCap},
		{"add", addDoc, vecAdd},
		{"add_past", addPastDoc, vecAddPast},
		{"max", maxDoc, vecMax},
		{"sum_exp", sumExpDoc, vecSumExp},
		{"cross_entropy_grad", crossEntropyGradDoc, vecCrossEntropyGrad},
		{"moments", momentsDoc, vecMoments},
		{"squares", squaresDoc, vecSquares},
		{"normalise", normaliseDoc, vecNormalise},
		{"norm_sums", normSumsDoc, vecNormSums},
		{"norm_grad", normGradDoc, vecNormGrad},
		{"norm_weight_grad", normWeightGradDoc, vecNormWeightGrad},
		{"col_sum", colSumDoc, vecColSum},
		{"rope", ropeDoc, vecRoPE},
		{"keep", keepDoc, vecKeep},
		{"drop", dropDoc, vecDrop},
		{"adamw", adamWDoc, vecAdamW},
		{"sgd", sgdDoc, vecSGD},
		{"bf16", bf16Doc, vecBF16},
		{"state", stateDoc, vecState},
	} {
		ks = append(ks,
			kernel{"vec", k.name + "_avx2", k.doc, func(c *build.Context) { k.emit(avx2(c)) }},
			kernel{"vec", k.name + "_avx512", k.doc, func(c *build.Context) { k.emit(avx512(c)) }},
		)
	}
	return append(ks, kernel{"vec", "bf16_avx512bf16", bf16PairsDoc, func(c *build.Context) {
		a := avx512(c)
		a.name += "BF16"
		vecBF16Pairs(a)
	}})
}
