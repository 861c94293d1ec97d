package cuda

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// mmaTiling is how the kernels for tensor cores cut attention, for heads of up to so many
// channels. A block has attendQueries queries of attention, and of its gradient keys keys and
// at a time gradQueries queries.
type mmaTiling struct {
	attendQueries, attendKeys     int // with dropout, the half of the keys
	attendShared                  int // bytes of shared memory; with dropout, the half
	keys, gradQueries, gradShared int
}

const mmaThreads = 128 // of a block

// mmaTilings are by channels: the numbers are those of attend_mma.cuh and attention_grad_mma.cuh.
var mmaTilings = map[int]mmaTiling{
	narrowHead: {attendQueries: 64, attendKeys: 64, attendShared: 32768, keys: 128, gradQueries: 64, gradShared: 82944},
	wideHead:   {attendQueries: 64, attendKeys: 64, attendShared: 65536, keys: 64, gradQueries: 32, gradShared: 70144},
}

// attentionMMAArgs is attention_mma_args of attend_mma.cuh.
type attentionMMAArgs struct {
	o, lse, q, k, v                    uint64
	oStride, qStride, kStride, vStride int64
	sizes                              attentionSizes
	step                               int32
	halves                             uint32
}

// attentionGradMMAArgs is attention_grad_mma_args of attention_grad_mma.cuh.
type attentionGradMMAArgs struct {
	dq, dk, dv, do, o, halfDO, q, k, v, lse, delta, sums, turns uint64
	dqStride, dkStride, dvStride, doStride, oStride             int64
	halfDOStride, qStride, kStride, vStride                     int64
	queries, counters                                           int64
	sizes                                                       attentionSizes
	step                                                        int32
	halves                                                      uint32
}

// multipliesBF16 reports whether kernels that are compiled for a target do so on tensor
// cores: Ampere's, and later ones.
func multipliesBF16(target string) bool {
	_, version, _ := strings.Cut(target, "_")
	n, err := strconv.Atoi(version)
	return err == nil && n >= 80
}

// onTensorCores reports whether an attention is one for them, as it may be if it may round to
// bfloat16: the kernels hold all channels of a head, and have a soft cap or dropout, not both. Keys that all come before the queries
// fill whole tiles, and no window hides them. The kernels take matrices in either type.
func onTensorCores(x *exec, o *tensorops.Op) bool {
	var s tensorops.AttentionSizes
	switch o.Kind {
	case tensorops.KindAttention:
		s = o.Attention().AttentionSizes
	case tensorops.KindAttentionGrad:
		s = o.AttentionGrad().AttentionSizes
	default:
		return false
	}
	return x.tensorCores && o.Has(tensorops.FlagBF16) && s.Width <= wideHead && (s.SoftCap == 0 || o.Mask().P == 0) &&
		(!s.Whole || s.Window == 0 && s.Keys%wholeKeys == 0) && s.Factor() >= leastScale
}

// wholeKeys is what the numbers of keys of all tilings divide.
const wholeKeys = 128

// leastScale is the least factor of scores with which the lowest float32, which marks a key that is not seen, is
// still below all scores.
const leastScale = 1e-20

// mmaKernel is the name of a kernel for those heads.
func mmaKernel(name string, s *attentionSizes) (kernel string, channels int) {
	channels = wideHead
	if s.width <= narrowHead {
		channels = narrowHead
	}
	kernel = fmt.Sprint(name, "_mma_", channels)
	switch {
	case s.dropped != 0:
		kernel += "_dropped"
	case s.cap != 0:
		kernel += "_capped"
	}
	if s.starts != 0 {
		kernel += startsForm
	}
	return kernel, channels
}

// headStep is from one head to the next of what the kernels read: heads begin at multiples of
// 16 bytes.
func headStep(width int) int { return ceil(width, 8) * 8 }

// halfHeads is where the kernels read a matrix of heads: where it lies if that is bfloat16 at
// multiples of 16 bytes, else in a rounded copy.
func (x *exec) halfHeads(t tensorops.Tensor, width int) (at uint64, rowStride int64, err error) {
	step := headStep(width)
	if isBFloat16(t) && step == width && address(t)%16 == 0 && t.Stride()%8 == 0 {
		return address(t), int64(t.Stride()), nil
	}
	heads := t.Cols() / width
	stride := heads * step
	if at, err = x.scratch(max(2*t.Rows()*stride, 1)); err != nil {
		return 0, 0, err
	}
	if step == width {
		return at, int64(stride), copyToPlace(x, matrixAt{at, tensorops.BFloat16, stride}, t)
	}
	for h := range heads {
		head := t.Columns(h*width, (h+1)*width)
		if err := copyToPlace(x, matrixAt{at + uint64(2*h*step), tensorops.BFloat16, stride}, head); err != nil {
			return 0, 0, err
		}
	}
	return at, int64(stride), nil
}

// halvesOf has a bit for each matrix, the first is 1: set if it is bfloat16.
func halvesOf(matrices ...tensorops.Tensor) (bits uint32) {
	for i, t := range matrices {
		if isBFloat16(t) {
			bits |= 1 << i
		}
	}
	return bits
}

// attentionMMA computes o and lse on tensor cores.
func attentionMMA(x *exec, a tensorops.AttentionArgs) (err error) {
	args := attentionMMAArgs{
		o: address(a.O), lse: address(a.LSE), oStride: int64(a.O.Stride()),
		sizes: attentionSizesOf(x, a.AttentionSizes, a.Mask, a.O), step: int32(headStep(a.Width)), halves: halvesOf(a.O),
	}
	if args.q, args.qStride, err = x.halfHeads(a.Q, a.Width); err != nil {
		return err
	}
	if args.k, args.kStride, err = x.halfHeads(a.K, a.Width); err != nil {
		return err
	}
	if args.v, args.vStride, err = x.halfHeads(a.V, a.Width); err != nil {
		return err
	}
	args.sizes.starts = startsAt(a.Starts)
	kernel, channels := mmaKernel("attention", &args.sizes)
	t := mmaTilings[channels]
	g := grid{x: ceil(a.Queries, t.attendQueries) * a.Batch * a.Heads, threads: mmaThreads, shared: t.attendShared}
	keys := t.attendKeys
	if args.sizes.dropped != 0 {
		g.shared /= 2
		keys /= 2
	}
	if a.Queries == 0 {
		return nil
	}
	if err := startTiles(x, a.AttentionSizes, a.Starts, &args.sizes, t.attendQueries, keys); err != nil {
		return err
	}
	return launch(x, kernel, g, &args)
}

// attentionGradMMA computes dq, dk and dv on tensor cores. Blocks sum dq up in scratch memory,
// in float32, and take turns at it: see attention_grad_mma.cuh.
func attentionGradMMA(x *exec, a tensorops.AttentionGradArgs) (err error) {
	args := attentionGradMMAArgs{
		dq: address(a.DQ), dk: address(a.DK), dv: address(a.DV), do: address(a.DO), o: address(a.O), lse: address(a.LSE),
		dqStride: int64(a.DQ.Stride()), dkStride: int64(a.DK.Stride()), dvStride: int64(a.DV.Stride()),
		doStride: int64(a.DO.Stride()), oStride: int64(a.O.Stride()),
		queries: int64(a.Batch) * int64(a.Heads) * int64(a.Queries),
		sizes:   attentionSizesOf(x, a.AttentionSizes, a.Mask, a.DQ, a.DK, a.DV, a.DO, a.O),
		step:    int32(headStep(a.Width)), halves: halvesOf(a.DQ, a.DK, a.DV, a.DO, a.O),
	}
	for _, m := range []struct {
		of     tensorops.Tensor
		at     *uint64
		stride *int64
	}{{a.DO, &args.halfDO, &args.halfDOStride}, {a.Q, &args.q, &args.qStride}, {a.K, &args.k, &args.kStride}, {a.V, &args.v, &args.vStride}} {
		if *m.at, *m.stride, err = x.halfHeads(m.of, a.Width); err != nil {
			return err
		}
	}
	args.sizes.starts = startsAt(a.Starts)
	kernel, channels := mmaKernel("attention_grad", &args.sizes)
	t := mmaTilings[channels]
	tiles := ceil(a.Queries, t.gradQueries) * a.Batch * a.Heads
	args.counters = 1 + int64(tiles)
	if args.delta, err = x.scratch(4 * max(int(args.queries), 1)); err != nil {
		return err
	}
	if args.turns, err = x.scratch(4 * int(args.counters)); err != nil {
		return err
	}
	if a.Keys > t.keys { // else a block writes dq itself
		if args.sums, err = x.scratch(4 * tiles * t.gradQueries * channels); err != nil {
			return err
		}
	}
	const lanes = 8 // of a query
	if err := launch(x, "attention_delta_mma", x.over(max(lanes*int(args.queries), int(args.counters))), &args); err != nil {
		return err
	}
	blocks := ceil(a.Keys, t.keys) * a.Batch * a.KVHeads
	if blocks == 0 {
		return nil
	}
	if err := startTiles(x, a.AttentionSizes, a.Starts, &args.sizes, t.gradQueries, t.keys); err != nil {
		return err
	}
	return launch(x, kernel, grid{x: blocks, threads: mmaThreads, shared: t.gradShared}, &args)
}
