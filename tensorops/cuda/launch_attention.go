package cuda

import (
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

// attentionSizesOf reads the sizes of an operation with queries q on those matrices.
func attentionSizesOf(x *exec, o *tensorops.Op, q tensorops.Tensor, matrices []tensorops.Tensor) attentionSizes {
	width := q.Cols() / o.I[3]
	s := attentionSizes{
		tq: int32(o.I[1]), tk: int32(o.I[2]), heads: int32(o.I[3]), kvHeads: int32(o.I[4]), width: int32(width),
		scale: float32(1 / math.Sqrt(float64(width))),
	}
	if o.F[0] > 0 {
		s.mask, s.dropped = dropoutOf(x, o), 1
	}
	together := width%4 == 0 // where one head's quads are aligned, all are
	for _, m := range matrices {
		together = together && quads(m)
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

// onTensorCores reports whether an operation is one for them: they multiply bfloat16, and the
// kernels hold all channels of a head.
func onTensorCores(x *exec, o *tensorops.Op, s *attentionSizes) bool {
	return o.Has(tensorops.FlagBF16) && x.tensorCores && s.width <= wideHead
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

// attention computes o and lse.
func attention(x *exec, op *tensorops.Op) error {
	o, q, k, v, lse := op.T[0], op.T[1], op.T[2], op.T[3], op.T[4]
	args := attentionArgs{
		o: address(o), lse: address(lse), q: address(q), k: address(k), v: address(v),
		oStride: int64(o.Stride()), qStride: int64(q.Stride()), kStride: int64(k.Stride()), vStride: int64(v.Stride()),
		sizes: attentionSizesOf(x, op, q, op.T[:4]),
	}
	t := attendFloat32
	if onTensorCores(x, op, &args.sizes) {
		t = attendBF16
	}
	return launchTiles(x, t, op.I[1], op.I[0]*op.I[3], &args.sizes, &args)
}

// attentionGrad computes dq, dk and dv.
func attentionGrad(x *exec, op *tensorops.Op) error {
	dq, dk, dv, do, q, k, v, o, lse := op.T[0], op.T[1], op.T[2], op.T[3], op.T[4], op.T[5], op.T[6], op.T[7], op.T[8]
	batch, tq, tk, heads, kvHeads := op.I[0], op.I[1], op.I[2], op.I[3], op.I[4]
	args := attentionGradArgs{
		dq: address(dq), dk: address(dk), dv: address(dv), do: address(do),
		q: address(q), k: address(k), v: address(v), o: address(o), lse: address(lse),
		dqStride: int64(dq.Stride()), dkStride: int64(dk.Stride()), dvStride: int64(dv.Stride()), doStride: int64(do.Stride()),
		qStride: int64(q.Stride()), kStride: int64(k.Stride()), vStride: int64(v.Stride()), oStride: int64(o.Stride()),
		queries: int64(batch) * int64(heads) * int64(tq),
		sizes:   attentionSizesOf(x, op, q, op.T[:8]),
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
	if onTensorCores(x, op, &args.sizes) {
		keys, queries = keysBF16, queriesBF16
	}
	if err := launchTiles(x, keys, tk, batch*kvHeads, &args.sizes, &args); err != nil {
		return err
	}
	return launchTiles(x, queries, tq, batch*heads, &args.sizes, &args)
}
