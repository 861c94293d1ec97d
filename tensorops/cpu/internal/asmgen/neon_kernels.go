package main

// neonKernel is one file of assembly for arm64.
type neonKernel struct {
	pkg, name, doc string
	emit           func(n *neon)
}

// neonKernels lists all that is generated for arm64. What a kernel computes is as on AVX2,
// whose documents say it.
func neonKernels() []neonKernel {
	return []neonKernel{
		{"gemm", "tile", neonTileDoc, neonTiles},
		{"gemm", "pack", neonPackDoc, neonPacks},
		{"attn", "max", attnMaxDoc, neonAttnMax},
		{"attn", "exp", attnExpDoc, neonAttnExp},
		{"attn", "scale", attnScaleDoc, neonAttnScale},
		{"attn", "grad", attnGradDoc, neonAttnGrad},
		{"attn", "mul", attnMulDoc, neonAttnMul},
		{"attn", "cap", attnCapDoc, neonAttnCap},
		{"vec", "exp", expDoc, neonVecExp},
		{"vec", "tanh", tanhDoc, neonVecTanh},
		{"vec", "gelu", geluDoc, neonVecGELU},
		{"vec", "gelu_grad", geluGradDoc, neonVecGELUGrad},
		{"vec", "swiglu", swigluDoc, neonVecSwiGLU},
		{"vec", "swiglu_grad", swigluGradDoc, neonVecSwiGLUGrad},
		{"vec", "gate", gateDoc, neonVecGate},
		{"vec", "gate_grad", gateGradDoc, neonVecGateGrad},
		{"vec", "soft_cap", softCapDoc, neonVecSoftCap},
		{"vec", "add", addDoc, neonVecAdd},
		{"vec", "add_past", addPastDoc, neonVecAddPast},
		{"vec", "max", maxDoc, neonVecMax},
		{"vec", "sum_exp", sumExpDoc, neonVecSumExp},
		{"vec", "cross_entropy_grad", crossEntropyGradDoc, neonVecCrossEntropyGrad},
		{"vec", "moments", momentsDoc, neonVecMoments},
		{"vec", "squares", squaresDoc, neonVecSquares},
		{"vec", "normalise", normaliseDoc, neonVecNormalise},
		{"vec", "norm_sums", normSumsDoc, neonVecNormSums},
		{"vec", "norm_grad", normGradDoc, neonVecNormGrad},
		{"vec", "norm_weight_grad", normWeightGradDoc, neonVecNormWeightGrad},
		{"vec", "col_sum", colSumDoc, neonVecColSum},
		{"vec", "rope", ropeDoc, neonVecRoPE},
		{"vec", "keep", neonKeepDoc, neonVecKeep},
		{"vec", "drop", dropDoc, neonVecDrop},
		{"vec", "adamw", adamWDoc, neonVecAdamW},
		{"vec", "sgd", sgdDoc, neonVecSGD},
		{"vec", "bf16", bf16Doc, neonVecBF16},
		{"vec", "state", stateDoc, neonVecState},
	}
}
