package cuda

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

var attentionLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindAttention:     attention,
	tensorops.KindAttentionGrad: attentionGrad,
}

// attentionSizes is attention_sizes of attention.cuh.
type attentionSizes struct {
	mask                          dropout
	tq, tk, heads, kvHeads, width int32
	scale                         float32
	dropped                       int32
	quads                         int32
	window                        int32 // 0: all
	reach                         int32
}

// attentionArgs is attention_args of attention.cuh.
type attentionArgs struct {
	o, lse, q, k, v                    uint64
	oStride, qStride, kStride, vStride int64
	sizes                              attentionSizes
}

// attentionGradArgs is attention_grad_args of attention.cuh.
type attentionGradArgs struct {
	dq, dk, dv, do, q, k, v, o, lse, delta uint64
	dqStride, dkStride, dvStride, doStride int64
	qStride, kStride, vStride, oStride     int64
	queries                                int64
	sizes                                  attentionSizes
}

// tiling is how the kernels for something cut it, and their names: for narrow heads and for
// wide ones, and for heads whose quads are not aligned if they have a kernel of their own.
type tiling struct {
	rows                    int // of a block: queries or keys
	narrow, wide, unaligned string
}

const (
	attentionThreads = 256
	attentionTile    = 64  // TILE of attention.cuh: queries, keys
	mmaQueries       = 128 // QUERIES of attention_mma.cuh
	mmaKeys          = 64  // KEYS of attention_grad_mma.cu
	narrowHead       = 64  // channels
	wideHead         = 128 // channels
)

// What attention and its gradients are computed with: in float32, or with bfloat16 on the
// tensor cores.
var (
	attendFloat32  = tiling{rows: attentionTile, narrow: "attention_64", wide: "attention_128"}
	keysFloat32    = tiling{rows: attentionTile, narrow: "attention_keys_64", wide: "attention_keys_128"}
	queriesFloat32 = tiling{rows: attentionTile, narrow: "attention_queries_64", wide: "attention_queries_128"}

	attendBF16  = tiling{rows: mmaQueries, narrow: "attention_mma_64", wide: "attention_mma_128", unaligned: "attention_mma_any"}
	keysBF16    = tiling{rows: mmaKeys, narrow: "attention_keys_mma_64", wide: "attention_keys_mma_128", unaligned: "attention_keys_mma_any"}
	queriesBF16 = tiling{rows: mmaQueries, narrow: "attention_queries_mma_64", wide: "attention_queries_mma_128", unaligned: "attention_queries_mma_any"}
)

// attentionSizesOf are the sizes for the kernels, which work on those matrices.
func attentionSizesOf(x *exec, a tensorops.AttentionSizes, m tensorops.Mask, matrices ...tensorops.Tensor) attentionSizes {
	s := attentionSizes{
		tq: int32(a.Queries), tk: int32(a.Keys), heads: int32(a.Heads), kvHeads: int32(a.KVHeads), width: int32(a.Width),
		scale: float32(1 / math.Sqrt(float64(a.Width))),
	}
	s.reach = s.tk
	if a.Window > 0 && a.Window < a.Keys {
		s.window = int32(a.Window)
		s.reach = s.window
	}
	if m.P > 0 {
		s.mask, s.dropped = dropoutOf(x, m), 1
	}
	together := a.Width%4 == 0 // where one head's quads are aligned, all are
	for _, t := range matrices {
		together = together && quads(t)
	}
	s.quads = number(together)
	return s
}

// multipliesBF16 reports whether kernels that are compiled for a target do so on tensor
// cores: Ampere's, and later ones.
func multipliesBF16(target string) bool {
	_, version, _ := strings.Cut(target, "_")
	n, err := strconv.Atoi(version)
	return err == nil && n >= 80
}

// onTensorCores reports whether an operation that may round to bfloat16 is one for them: the
// kernels hold all channels of a head.
func onTensorCores(x *exec, bf16 bool, width int) bool {
	return bf16 && x.tensorCores && width <= wideHead
}

// launchTiles starts the kernel that the sizes ask for: a block for each tile of that number of
// rows, in each head of each sequence, and for each window of channels.
func launchTiles[A any](x *exec, t tiling, rows, heads int, s *attentionSizes, args *A) error {
	kernel, window := t.narrow, narrowHead
	switch {
	case t.unaligned != "" && s.quads == 0:
		kernel, window = t.unaligned, wideHead
	case s.width > narrowHead:
		kernel, window = t.wide, wideHead
	}
	tiles := ceil(rows, t.rows) * heads
	if tiles == 0 {
		return nil
	}
	return launch(x, kernel, grid{x: tiles, y: ceil(int(s.width), window), threads: attentionThreads}, args)
}

// onlyCausal refuses what the kernels don't have.
func onlyCausal(a tensorops.AttentionSizes, onto bool) error {
	if a.Whole || onto || a.Of > 0 {
		return fmt.Errorf("%w: attention over one block of a sequence's keys after another", tensorops.ErrUnsupported)
	}
	return nil
}

// attention computes o and lse.
func attention(x *exec, op *tensorops.Op) error {
	a := op.Attention()
	if err := onlyCausal(a.AttentionSizes, a.Onto); err != nil {
		return err
	}
	args := attentionArgs{
		o: address(a.O), lse: address(a.LSE), q: address(a.Q), k: address(a.K), v: address(a.V),
		oStride: int64(a.O.Stride()), qStride: int64(a.Q.Stride()), kStride: int64(a.K.Stride()), vStride: int64(a.V.Stride()),
		sizes: attentionSizesOf(x, a.AttentionSizes, a.Mask, a.O, a.Q, a.K, a.V),
	}
	t := attendFloat32
	if onTensorCores(x, a.BF16, a.Width) {
		t = attendBF16
	}
	return launchTiles(x, t, a.Queries, a.Batch*a.Heads, &args.sizes, &args)
}

// attentionGrad computes dq, dk and dv.
func attentionGrad(x *exec, op *tensorops.Op) error {
	a := op.AttentionGrad()
	if err := onlyCausal(a.AttentionSizes, false); err != nil {
		return err
	}
	args := attentionGradArgs{
		dq: address(a.DQ), dk: address(a.DK), dv: address(a.DV), do: address(a.DO),
		q: address(a.Q), k: address(a.K), v: address(a.V), o: address(a.O), lse: address(a.LSE),
		dqStride: int64(a.DQ.Stride()), dkStride: int64(a.DK.Stride()), dvStride: int64(a.DV.Stride()), doStride: int64(a.DO.Stride()),
		qStride: int64(a.Q.Stride()), kStride: int64(a.K.Stride()), vStride: int64(a.V.Stride()), oStride: int64(a.O.Stride()),
		queries: int64(a.Batch) * int64(a.Heads) * int64(a.Queries),
		sizes:   attentionSizesOf(x, a.AttentionSizes, a.Mask, a.DQ, a.DK, a.DV, a.DO, a.Q, a.K, a.V, a.O),
	}
	if args.queries > 0 {
		var err error
		if args.delta, err = x.scratch(4 * int(args.queries)); err != nil {
			return err
		}
		const warp = 32
		if err := launch(x, "attention_delta", x.over(warp*int(args.queries)), &args); err != nil {
			return err
		}
	}
	keys, queries := keysFloat32, queriesFloat32
	if onTensorCores(x, a.BF16, a.Width) {
		keys, queries = keysBF16, queriesBF16
	}
	if err := launchTiles(x, keys, a.Keys, a.Batch*a.KVHeads, &args.sizes, &args); err != nil {
		return err
	}
	return launchTiles(x, queries, a.Queries, a.Batch*a.Heads, &args.sizes, &args)
}
