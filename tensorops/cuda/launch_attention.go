package cuda

import (
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/tensorops"
)

var attentionLaunchers = map[tensorops.Kind]launcher{
	tensorops.KindAttention:     attention,
	tensorops.KindAttentionGrad: attentionGrad,
}

// attentionSizes is attention_sizes of attention.cuh.
type attentionSizes struct {
	mask                          dropout
	starts, oldest, ends          uint64 // 0: all keys are of one document
	tq, tk, heads, kvHeads, width int32
	scale                         float32
	dropped                       int32
	quads                         int32
	window                        int32 // 0: all
	reach                         int32
	maskQueries, maskKeys         int32
	cap, inside                   float32 // of the scores; 0: none
	offset, _                     int32
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

const (
	attentionThreads = 256
	attentionTile    = 64 // TILE of attention.cuh: queries, keys
	narrowHead       = 64 // channels
	wideHead         = 128
)

// attentionSizesOf are the sizes for the kernels, which work a quad at a time on those matrices.
func attentionSizesOf(x *exec, a tensorops.AttentionSizes, m tensorops.Mask, matrices ...tensorops.Tensor) attentionSizes {
	s := attentionSizes{
		tq: int32(a.Queries), tk: int32(a.Keys), heads: int32(a.Heads), kvHeads: int32(a.KVHeads), width: int32(a.Width),
		scale: float32(a.Factor()),
	}
	if a.SoftCap > 0 {
		s.cap, s.inside = float32(a.SoftCap), float32(a.Factor()/a.SoftCap)
	}
	s.offset = int32(a.Offset())
	s.reach = s.offset + s.tq
	if a.Window > 0 && a.Window < int(s.reach) {
		s.window = int32(a.Window)
		s.reach = s.window
	}
	if m.P > 0 {
		s.mask, s.dropped = dropoutOf(x, m), 1
	}
	if s.maskQueries, s.maskKeys = s.tq, s.tk; a.Of > 0 {
		s.maskQueries, s.maskKeys = int32(a.Of), int32(a.Of)
	}
	together := a.Width%4 == 0 // where one head's quads are aligned, all are
	for _, t := range matrices {
		together = together && t.Stride()%4 == 0 && fours(address(t), t.DType().Size())
	}
	s.quads = number(together)
	return s
}

// launchTiles starts the kernel for narrow heads or that for wide ones: a block for each tile of
// that number of rows, in each head of each sequence, and for each window of channels.
func launchTiles[A any](x *exec, kernel string, rows, heads int, s *attentionSizes, args *A) error {
	window := narrowHead
	if s.width > narrowHead {
		window = wideHead
	}
	tiles := ceil(rows, attentionTile) * heads
	if tiles == 0 {
		return nil
	}
	form := ""
	if s.cap != 0 {
		form = "_capped"
	}
	if s.starts != 0 {
		form += startsForm
	}
	return launch(x, fmt.Sprint(kernel, "_", window, form), grid{x: tiles, y: ceil(int(s.width), window), threads: attentionThreads}, args)
}

// startsForm is what the names of kernels for documents that share a sequence end in.
const startsForm = "_starts"

// startsAt is where starts lie; 0: there are none.
func startsAt(starts tensorops.Tensor) uint64 {
	if !starts.Valid() || starts.Len() == 0 {
		return 0
	}
	return address(starts)
}

// startTiles finds which tiles of queries and keys meet, if documents share a sequence.
func startTiles(x *exec, a tensorops.AttentionSizes, starts tensorops.Tensor, s *attentionSizes, queries, keys int) (err error) {
	if s.starts = startsAt(starts); s.starts == 0 {
		return nil
	}
	tiles, keyTiles := ceil(a.Queries, queries), ceil(a.Keys, keys)
	if s.oldest, err = x.scratch(4 * a.Batch * (tiles + keyTiles)); err != nil {
		return err
	}
	s.ends = s.oldest + uint64(4*a.Batch*tiles)
	const threads = 128
	return launch(x, "attention_starts", grid{x: a.Batch, threads: threads}, &struct {
		oldest, ends, starts                  uint64
		tq, tk, window, offset, queries, keys int32
	}{
		oldest: s.oldest, ends: s.ends, starts: s.starts,
		tq: s.tq, tk: s.tk, window: s.window, offset: s.offset, queries: int32(queries), keys: int32(keys),
	})
}

// countable refuses sizes that the kernels can't number.
func countable(a tensorops.AttentionSizes) error {
	if rows := uint64(a.Batch) * uint64(a.Heads) * uint64(max(a.Queries, a.Of)); rows > math.MaxUint32 {
		return fmt.Errorf("%w: attention has %d rows of scores, but the addresses of its mask cover only %d", tensorops.ErrUnsupported, rows,
			uint32(math.MaxUint32))
	}
	if last := a.Offset() + a.Queries; last > math.MaxInt32 {
		return fmt.Errorf("%w: the last of %d queries has position %d; the limit is %d", tensorops.ErrUnsupported, a.Queries, last,
			math.MaxInt32)
	}
	return nil
}

// attention computes o and lse.
func attention(x *exec, op *tensorops.Op) error {
	a := op.Attention()
	if err := countable(a.AttentionSizes); err != nil {
		return err
	}
	if a.Onto {
		return attendOnto(x, op, a)
	}
	return attend(x, op, a)
}

// attendOnto computes the attention to these keys alone, and adds it to that to other keys.
func attendOnto(x *exec, op *tensorops.Op, a tensorops.AttentionArgs) (err error) {
	o, lse := a.O, a.LSE
	if a.O, err = x.float32Like(o); err != nil {
		return err
	}
	if a.LSE, err = x.float32Like(lse); err != nil {
		return err
	}
	if err := attend(x, op, a); err != nil {
		return err
	}
	bits := halves(o)
	return byWarps(x, mixed("attention_onto", bits), lse.Len(), &struct {
		o, lse, partO, partLSE uint64
		count                  int64
		queries, heads, width  int32
		halves                 uint32
	}{
		o: address(o), lse: address(lse), partO: address(a.O), partLSE: address(a.LSE), count: int64(lse.Len()),
		queries: int32(a.Queries), heads: int32(a.Heads), width: int32(a.Width), halves: bits,
	})
}

// attend computes the o and lse of an operation as if there were no other keys.
func attend(x *exec, op *tensorops.Op, a tensorops.AttentionArgs) error {
	if onTensorCores(x, op) {
		return attentionMMA(x, a)
	}
	args := attentionArgs{
		o: address(a.O), lse: address(a.LSE), q: address(a.Q), k: address(a.K), v: address(a.V),
		oStride: int64(a.O.Stride()), qStride: int64(a.Q.Stride()), kStride: int64(a.K.Stride()), vStride: int64(a.V.Stride()),
		sizes: attentionSizesOf(x, a.AttentionSizes, a.Mask, a.O, a.Q, a.K, a.V),
	}
	if err := startTiles(x, a.AttentionSizes, a.Starts, &args.sizes, attentionTile, attentionTile); err != nil {
		return err
	}
	return launchTiles(x, "attention", a.Queries, a.Batch*a.Heads, &args.sizes, &args)
}

// attentionGrad computes dq, dk and dv.
func attentionGrad(x *exec, op *tensorops.Op) error {
	a := op.AttentionGrad()
	if err := countable(a.AttentionSizes); err != nil {
		return err
	}
	if onTensorCores(x, op) {
		return attentionGradMMA(x, a)
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
		if err := launch(x, "attention_delta", x.over(warp*int(args.queries)), &args); err != nil {
			return err
		}
	}
	if err := startTiles(x, a.AttentionSizes, a.Starts, &args.sizes, attentionTile, attentionTile); err != nil {
		return err
	}
	if err := launchTiles(x, "attention_keys", a.Keys, a.Batch*a.KVHeads, &args.sizes, &args); err != nil {
		return err
	}
	return launchTiles(x, "attention_queries", a.Queries, a.Batch*a.Heads, &args.sizes, &args)
}
