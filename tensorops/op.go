package tensorops

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// Kind is the kind of an operation.
type Kind uint8

// The operations. Each is documented at the List method that records it.
const (
	KindNone Kind = iota
	KindMatMul
	KindPack
	KindColSum
	KindEmbed
	KindEmbedGrad
	KindAddPositions
	KindPositionsGrad
	KindLayerNorm
	KindLayerNormGrad
	KindLayerNormWeightGrad
	KindRMSNorm
	KindRMSNormGrad
	KindRMSNormWeightGrad
	KindGELU
	KindGELUGrad
	KindSwiGLU
	KindSwiGLUGrad
	KindGate
	KindGateGrad
	KindAct
	KindActGrad
	KindSoftCap
	KindSoftCapGrad
	KindRoPE
	KindAttention
	KindAttentionGrad
	KindCausalConv
	KindCausalConvGrad
	KindCausalConvWeightGrad
	KindDeltaGates
	KindDeltaGatesGrad
	KindDeltaGatesWeightGrad
	KindGatedDelta
	KindGatedDeltaGrad
	KindAttentionSink
	KindAttentionSinkGrad
	KindDropout
	KindJitter
	KindAdd
	KindAddScaled
	KindRoute
	KindRouteGrad
	KindRouteStats
	KindRouteCount
	KindRouteBias
	KindBalanceLoads
	KindRowGate
	KindRowGateGrad
	KindDispatch
	KindCombine
	KindWeighRows
	KindGroupedMatMul
	KindGroupedWeightGrad
	KindSourceOffsets
	KindGroupedColSum
	KindWeighBias
	KindCrossEntropy
	KindCrossEntropyPart
	KindCrossEntropyJoin
	KindDistill
	KindFill
	KindCopy
	KindPeerCopy
	KindUpload
	KindFetch
	KindSquaredNorm
	KindAdamW
	KindSGD
	KindNarrowState
	KindWidenState
	KindCollective
	KindAwait
	KindSpin
	KindCall
	numKinds
)

// kinds names each operation and its operands, in the order of Op.T.
var kinds = [numKinds]struct{ name, operands string }{
	KindNone:                 {"none", ""},
	KindMatMul:               {"matmul", "C A B bias packed"},
	KindPack:                 {"pack", "dst B"},
	KindColSum:               {"col_sum", "sum x"},
	KindEmbed:                {"embed", "out weight ids"},
	KindEmbedGrad:            {"embed_grad", "grad dy ids"},
	KindAddPositions:         {"add_positions", "out x weight starts"},
	KindPositionsGrad:        {"positions_grad", "grad dy starts"},
	KindLayerNorm:            {"layer_norm", "y x gamma beta stats"},
	KindLayerNormGrad:        {"layer_norm_grad", "dx dy x gamma stats skip"},
	KindLayerNormWeightGrad:  {"layer_norm_weight_grad", "dgamma dbeta dy x stats"},
	KindRMSNorm:              {"rms_norm", "y x gamma stats"},
	KindRMSNormGrad:          {"rms_norm_grad", "dx dy x gamma stats skip"},
	KindRMSNormWeightGrad:    {"rms_norm_weight_grad", "dgamma dy x stats"},
	KindGELU:                 {"gelu", "y x"},
	KindGELUGrad:             {"gelu_grad", "dx dy x"},
	KindSwiGLU:               {"swiglu", "y gate up"},
	KindSwiGLUGrad:           {"swiglu_grad", "dgate dup dy gate up"},
	KindGate:                 {"gate", "y gate up"},
	KindGateGrad:             {"gate_grad", "dgate dup dy gate up"},
	KindAct:                  {"act", "y x"},
	KindActGrad:              {"act_grad", "dx dy x"},
	KindSoftCap:              {"soft_cap", "y x"},
	KindSoftCapGrad:          {"soft_cap_grad", "dx dy x"},
	KindRoPE:                 {"rope", "x starts"},
	KindAttention:            {"attention", "o q k v lse starts"},
	KindAttentionGrad:        {"attention_grad", "dq dk dv do q k v o lse starts"},
	KindAttentionSink:        {"attention_sink", "o lse sinks"},
	KindAttentionSinkGrad:    {"attention_sink_grad", "dsinks do o lse sinks"},
	KindCausalConv:           {"causal_conv", "y x weight state starts"},
	KindCausalConvGrad:       {"causal_conv_grad", "dx dy x weight starts"},
	KindCausalConvWeightGrad: {"causal_conv_weight_grad", "dweight dy x weight starts"},
	KindDeltaGates:           {"delta_gates", "gates a b aLog dtBias starts"},
	KindDeltaGatesGrad:       {"delta_gates_grad", "da db dgates gates a aLog dtBias"},
	KindDeltaGatesWeightGrad: {"delta_gates_weight_grad", "daLog ddtBias dgates gates a aLog dtBias"},
	KindGatedDelta:           {"gated_delta", "o q k v gates state"},
	KindGatedDeltaGrad:       {"gated_delta_grad", "dq dk dv dgates do q k v gates"},
	KindDropout:              {"dropout", "y x skip"},
	KindJitter:               {"jitter", "y x skip"},
	KindAdd:                  {"add", "out a b"},
	KindAddScaled:            {"add_scaled", "y x skip"},
	KindRoute:                {"route", "scores weights experts places offsets logits bias"},
	KindRouteGrad:            {"route_grad", "dlogits dweights scores experts offsets logits loads"},
	KindRouteStats:           {"route_stats", "stats scores experts offsets logits loads"},
	KindRouteCount:           {"route_count", "counts experts"},
	KindRouteBias:            {"route_bias", "bias counts"},
	KindBalanceLoads:         {"balance_loads", "dlogits sum scores experts loads"},
	KindRowGate:              {"row_gate", "y x gate"},
	KindRowGateGrad:          {"row_gate_grad", "dx dgate dy x gate"},
	KindDispatch:             {"dispatch", "rows x places"},
	KindCombine:              {"combine", "y rows places weights"},
	KindWeighRows:            {"weigh_rows", "rows drows dweights weights places offsets"},
	KindGroupedMatMul:        {"grouped_matmul", "C A B offsets bias packed"},
	KindGroupedWeightGrad:    {"grouped_weight_grad", "dweight dy x offsets"},
	KindSourceOffsets:        {"source_offsets", "offsets table"},
	KindGroupedColSum:        {"grouped_col_sum", "sum x offsets weights places"},
	KindWeighBias:            {"weigh_bias", "dweights dy bias experts"},
	KindCrossEntropy:         {"cross_entropy", "stats lse logits targets dlogits rowScale"},
	KindCrossEntropyPart:     {"cross_entropy_part", "parts logits targets"},
	KindCrossEntropyJoin:     {"cross_entropy_join", "stats lse parts targets logits dlogits rowScale"},
	KindDistill:              {"distill", "stats logits targets ids logp dlogits"},
	KindFill:                 {"fill", "t"},
	KindCopy:                 {"copy", "dst src"},
	KindPeerCopy:             {"peer_copy", "dst src"},
	KindUpload:               {"upload", "dst"},
	KindFetch:                {"fetch", "src"},
	KindSquaredNorm:          {"squared_norm", "out x"},
	KindAdamW:                {"adamw", "w m v g copy"},
	KindSGD:                  {"sgd", "w m g copy"},
	KindNarrowState:          {"narrow_state", "to scales x"},
	KindWidenState:           {"widen_state", "x from scales"},
	KindCollective:           {"collective", "dst src table"},
	KindAwait:                {"await", ""},
	KindSpin:                 {"spin", ""},
	KindCall:                 {"call", ""},
}

func (k Kind) String() string {
	if k >= numKinds {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kinds[k].name
}

// Kinds returns all kinds of operations that a device should support.
func Kinds() []Kind {
	ks := make([]Kind, 0, numKinds-1)
	for k := KindNone + 1; k < numKinds; k++ {
		ks = append(ks, k)
	}
	return ks
}

// Flags modify an operation.
type Flags uint16

const (
	FlagTransA     Flags = 1 << iota // matmul: A is stored transposed
	FlagTransB                       // matmul: B is stored transposed
	FlagAccumulate                   // add to the output instead of replacing it; attention: combine with it
	FlagInverse                      // rope: rotate back
	FlagBF16                         // matmul: A and B are rounded to bfloat16; attention: factors may be
	FlagClear                        // adamw: the gradient is set to 0
	FlagLater                        // collective: later operations do not wait for it
	FlagWhole                        // attention: every query attends to every key
	FlagSymmetric                    // matmul: C is symmetric
)

// Op is one recorded operation. It is flat, so that a list of operations is one piece of memory,
// reused in every step, and so that code for all kinds can iterate over it.
//
// The use of T, I and F for each kind is known only beside the List method of the kind. List.GELU
// puts a GELUArgs into the operation, and Op.GELU reads it back; so it is for each kind. A device
// reads an operation's operands there, by name. The operands are values and not pointers into the
// operation. That is easy to read and costs little: a Tensor has 48 bytes, and at most ten tensors
// are copied, for the gradient of attention.
type Op struct {
	Kind  Kind
	Flags Flags
	T     [10]Tensor
	I     [8]int
	F     [8]float64
	Key   rng.Key   // dropout and jitter: the site's stream; narrow_state: the part's
	U     [2]uint64 // dropout and jitter: step, and index of the first element in the global batch; narrow_state: see NarrowStateOpts
	Host  []byte    // upload and fetch
	Group Group     // collectives
	Own   *Call     // a program's own operation

	Rotation *Rotation // rope
}

// Has reports whether a flag is set.
func (o *Op) Has(f Flags) bool { return o.Flags&f != 0 }

// set sets or clears a flag.
func (o *Op) set(f Flags, on bool) {
	o.Flags &^= f
	if on {
		o.Flags |= f
	}
}

// operands stores the first tensors of T.
func (o *Op) operands(ts ...Tensor) { copy(o.T[:], ts) }

// String returns the operation with its operands and numbers, for errors.
func (o *Op) String() string {
	var b strings.Builder
	if o.Kind == KindCollective {
		b.WriteString(Collective(o.I[0]).String())
	} else {
		b.WriteString(o.Kind.String())
	}
	for i, name := range strings.Fields(kinds[o.Kind].operands) {
		fmt.Fprintf(&b, " %s=%v", name, o.T[i])
	}
	if o.I != [8]int{} {
		fmt.Fprintf(&b, " sizes=%d", o.I)
	}
	if o.F != [8]float64{} {
		fmt.Fprintf(&b, " numbers=%g", o.F)
	}
	if r := o.Rotation; r != nil {
		fmt.Fprintf(&b, " rotation=%d pairs, scale %g", r.Pairs(), r.Scale())
	}
	if o.Host != nil {
		fmt.Fprintf(&b, " host=%d bytes", len(o.Host))
	}
	if o.Own != nil {
		fmt.Fprintf(&b, " %q reads=%v writes=%v", o.Own.Name, o.Own.Reads, o.Own.Writes)
	}
	return b.String()
}
