package optest

import "github.com/troupe-ml/troupe/tensorops"

// ulp is the distance from 1 to the next float32.
const ulp = 1.0 / (1 << 23)

// tolerances are the errors that are allowed for each kind, in ulps of the
// largest magnitude of the output: a rounding or two for arithmetic, a few for
// functions. A case may loosen it where it knows why, as a long sum does.
var tolerances = map[tensorops.Kind]float64{
	// Nothing is computed: to the bit.
	tensorops.KindEmbed:      0,
	tensorops.KindFill:       0,
	tensorops.KindCopy:       0,
	tensorops.KindPeerCopy:   0,
	tensorops.KindUpload:     0,
	tensorops.KindFetch:      0,
	tensorops.KindCollective: 0,
	tensorops.KindAwait:      0,
	tensorops.KindSpin:       0,
	tensorops.KindCall:       0,

	tensorops.KindNarrowState: 0, // the form is defined to the bit
	tensorops.KindWidenState:  2,

	// Sums and products.
	tensorops.KindMatMul:        2,
	tensorops.KindPack:          2, // and a product with what it made
	tensorops.KindColSum:        1,
	tensorops.KindAdd:           1,
	tensorops.KindAddScaled:     2,
	tensorops.KindEmbedGrad:     2,
	tensorops.KindAddPositions:  1,
	tensorops.KindPositionsGrad: 2,
	tensorops.KindDropout:       2,
	tensorops.KindJitter:        2,
	tensorops.KindRouteCount:    0,
	tensorops.KindRouteBias:     1,
	tensorops.KindRowGate:       2,
	tensorops.KindRowGateGrad:   4,
	tensorops.KindSGD:           4,
	tensorops.KindSquaredNorm:   1e-5, // it is summed in float64

	// Functions of an element or a row.
	tensorops.KindLayerNorm:            4,
	tensorops.KindLayerNormGrad:        8,
	tensorops.KindLayerNormWeightGrad:  4,
	tensorops.KindRMSNorm:              4,
	tensorops.KindRMSNormGrad:          8,
	tensorops.KindRMSNormWeightGrad:    4,
	tensorops.KindGELU:                 4,
	tensorops.KindGELUGrad:             16, // 1 − tanh² cancels where x is large
	tensorops.KindSwiGLU:               4,
	tensorops.KindSwiGLUGrad:           8,
	tensorops.KindGate:                 4,
	tensorops.KindGateGrad:             16, // as for GELU's
	tensorops.KindAct:                  4,
	tensorops.KindActGrad:              16,
	tensorops.KindSoftCap:              4,
	tensorops.KindSoftCapGrad:          8,
	tensorops.KindRoPE:                 4,
	tensorops.KindAttention:            8,
	tensorops.KindAttentionGrad:        16,
	tensorops.KindAttentionSink:        4,
	tensorops.KindAttentionSinkGrad:    4,
	tensorops.KindCausalConv:           4,
	tensorops.KindCausalConvGrad:       8,
	tensorops.KindCausalConvWeightGrad: 8,
	tensorops.KindDeltaGates:           4,
	tensorops.KindDeltaGatesGrad:       4,
	tensorops.KindDeltaGatesWeightGrad: 4,
	tensorops.KindGatedDelta:           16,
	tensorops.KindGatedDeltaGrad:       32,
	tensorops.KindRoute:                4,
	tensorops.KindRouteGrad:            4,
	tensorops.KindRouteStats:           4, // of float32 scores
	tensorops.KindBalanceLoads:         4,
	tensorops.KindDispatch:             0,
	tensorops.KindCombine:              2,
	tensorops.KindWeighRows:            2,
	tensorops.KindGroupedMatMul:        2,
	tensorops.KindGroupedWeightGrad:    2,
	tensorops.KindSourceOffsets:        0,
	tensorops.KindGroupedColSum:        2,
	tensorops.KindWeighBias:            2,
	tensorops.KindCrossEntropy:         4,
	tensorops.KindCrossEntropyPart:     4,
	tensorops.KindCrossEntropyJoin:     4,
	tensorops.KindDistill:              16, // logits over the temperature are rounded
	tensorops.KindAdamW:                8,
}
