package tensorops_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

var update = flag.Bool("update", false, "regenerate the golden files")

func newList() *tensorops.List { return tensorops.NewList(newArena(), nil) }

// TestListErrors records each operation with operands that don't fit, one way
// after another, and keeps what it says. The messages are in testdata.
func TestListErrors(t *testing.T) {
	var none tensorops.Tensor
	l := newList()
	f := func(dims ...int) tensorops.Tensor { return l.Alloc(tensorops.Float32, dims...) }
	d := func(dims ...int) tensorops.Tensor { return l.Alloc(tensorops.Float64, dims...) }
	i := func(dims ...int) tensorops.Tensor { return l.Alloc(tensorops.Int32, dims...) }
	columns := func(rows, cols int) tensorops.Tensor { return f(rows, cols+1).Columns(0, cols) }
	rms, turn := tensorops.RMSNormOpts{Eps: 1e-5}, func(f ...float64) *tensorops.Rotation { return tensorops.NewRotation(f, 1) }
	positions := func(period, first int) tensorops.PositionOpts {
		return tensorops.PositionOpts{Period: period, First: first}
	}
	var b strings.Builder
	for _, test := range []struct {
		what   string
		record func()
	}{
		{"a dimension below zero", func() { f(3, -1) }},
		{"too many dimensions", func() { f(1, 1, 1, 1, 1, 1, 1) }},
		{"like nothing", func() { l.AllocLike(none) }},
		{"more memory than there is", func() { f(math.MaxInt32, 1<<20) }},
		{"the inner sizes differ", func() { l.MatMul(f(2, 3), f(2, 4), f(5, 3), tensorops.MatMulOpts{}) }},
		{"they fit only transposed", func() { l.MatMul(f(2, 3), f(2, 4), f(3, 4), tensorops.MatMulOpts{}) }},
		{"the output is too small", func() { l.MatMul(f(2, 2), f(2, 4), f(4, 3), tensorops.MatMulOpts{}) }},
		{"a matrix is missing", func() { l.MatMul(f(2, 3), none, f(4, 3), tensorops.MatMulOpts{}) }},
		{"a matrix of another type", func() { l.MatMul(f(2, 3), f(2, 4), d(4, 3), tensorops.MatMulOpts{}) }},
		{"a bias of another length", func() { l.MatMul(f(2, 3), f(2, 4), f(4, 3), tensorops.MatMulOpts{Bias: f(2)}) }},
		{"a bias and accumulation", func() {
			l.MatMul(f(2, 3), f(2, 4), f(4, 3), tensorops.MatMulOpts{Bias: f(3), Accumulate: true})
		}},
		{"a symmetric matrix that isn't square", func() {
			l.MatMul(f(2, 3), f(2, 4), f(4, 3), tensorops.MatMulOpts{Symmetric: true})
		}},
		{"a symmetric matrix and a bias", func() {
			l.MatMul(f(3, 3), f(3, 4), f(4, 3), tensorops.MatMulOpts{Symmetric: true, Bias: f(3)})
		}},
		{"a sum of rows", func() { l.ColSum(f(2), f(2, 3)) }},
		{"other lengths", func() { l.Add(f(2, 3), f(3, 2), f(5)) }},
		{"columns with gaps", func() { l.Add(f(2, 3), columns(2, 3), f(6)) }},
		{"ids that aren't int32", func() { l.Embed(f(4, 3), f(9, 3), f(4)) }},
		{"more ids than rows", func() { l.Embed(f(4, 3), f(9, 3), i(5)) }},
		{"another width", func() { l.EmbedGrad(f(9, 2), f(4, 3), i(4)) }},
		{"part of a period", func() { l.AddPositions(f(7, 3), f(7, 3), f(4, 3), positions(4, 0)) }},
		{"no period", func() { l.AddPositions(f(8, 3), f(8, 3), f(4, 3), positions(0, 0)) }},
		{"positions without a row", func() { l.PositionsGrad(f(4, 3), f(8, 3), positions(4, 1)) }},
		{"starts for other rows", func() {
			l.AddPositions(f(8, 3), f(8, 3), f(4, 3), tensorops.PositionOpts{Period: 4, Starts: i(4)})
		}},
		{"stats for one number a row", func() { l.LayerNorm(f(4, 3), f(4, 3), f(3), f(3), f(4), 1e-5) }},
		{"gamma of a row's length", func() { l.LayerNorm(f(4, 3), f(4, 3), f(4), none, f(4, 2), 1e-5) }},
		{"rows of nothing", func() { l.LayerNorm(f(4, 0), f(4, 0), f(0), none, f(4, 2), 1e-5) }},
		{"skip of another length", func() { l.LayerNormGrad(f(4, 3), f(4, 3), f(4, 3), f(3), f(4, 2), f(3)) }},
		{"dbeta of another length", func() { l.LayerNormWeightGrad(f(3), f(4), f(4, 3), f(4, 3), f(4, 2)) }},
		{"stats for two numbers a row", func() { l.RMSNorm(f(4, 3), f(4, 3), f(3), f(4, 2), rms) }},
		{"dy of another length", func() { l.RMSNormGrad(f(4, 3), f(4, 4), f(4, 3), f(3), f(4), none, rms) }},
		{"x of another length", func() { l.RMSNormWeightGrad(f(3), f(4, 3), f(5, 3), f(4)) }},
		{"an output of another length", func() { l.GELU(f(4), f(5)) }},
		{"a missing operand", func() { l.GELUGrad(f(4), none, f(4)) }},
		{"another type", func() { l.SwiGLU(f(4), f(4), d(4)) }},
		{"one of five", func() { l.SwiGLUGrad(f(4), f(4), f(4), f(3), f(4)) }},
		{"all are dropped", func() { l.Dropout(f(4), f(4), none, tensorops.Mask{P: 1}) }},
		{"P is not a number", func() { l.Dropout(f(4), f(4), none, tensorops.Mask{P: math.NaN()}) }},
		{"heads of less than all pairs", func() { l.RoPE(f(4, 6), tensorops.RoPEOpts{Heads: 2, Period: 4, Rotation: turn(1, 0.01)}) }},
		{"positions above 2^31", func() { l.RoPE(f(4, 8), tensorops.RoPEOpts{Heads: 2, Period: 4, First: 1<<31 - 3, Rotation: turn(1)}) }},
		{"starts that aren't int32", func() {
			l.RoPE(f(4, 8), tensorops.RoPEOpts{Heads: 2, Period: 4, Starts: f(4), Rotation: turn(1)})
		}},
		{"no heads", func() { l.RoPE(f(4, 6), tensorops.RoPEOpts{Period: 4, Rotation: turn(1)}) }},
		{"no rotation", func() { l.RoPE(f(4, 6), tensorops.RoPEOpts{Heads: 1, Period: 4}) }},
		{"a rotation of nothing", func() { l.RoPE(f(4, 6), tensorops.RoPEOpts{Heads: 1, Period: 4, Rotation: turn()}) }},
		{"a rotation that is not a number", func() {
			l.RoPE(f(4, 6), tensorops.RoPEOpts{Heads: 1, Period: 4,
				Rotation: turn(1, math.NaN())})
		}},
		{"an infinite factor", func() { l.AddScaled(f(4), f(4), none, math.Inf(1)) }},
		{"a skip of another length", func() { l.AddScaled(f(4), f(4), f(5), 1) }},
		{"no activation", func() { l.Gate(f(4), f(4), f(4), tensorops.GateOpts{Act: 200}) }},
		{"a limit of none", func() { l.Gate(f(4), f(4), f(4), tensorops.GateOpts{Act: tensorops.ReLU2, Limit: 1}) }},
		{"no limit", func() {
			l.GateGrad(f(4), f(4), f(4), f(4), f(4), tensorops.GateOpts{Act: tensorops.ClampedSwiGLU, Alpha: 1})
		}},
		{"a gate's activation", func() { l.Act(f(4), f(4), tensorops.ClampedSwiGLU) }},
		{"a gate's activation, gradient", func() { l.ActGrad(f(4), f(4), f(4), tensorops.ClampedSwiGLU) }},
		{"a cap of nothing", func() { l.SoftCap(f(4), f(4), 0) }},
		{"a cap that is not a number", func() { l.SoftCapGrad(f(4), f(4), f(4), math.NaN()) }},
		{"heads that share unevenly", func() {
			l.Attention(f(4, 6), f(4, 6), f(4, 4), f(4, 4), f(3, 4), tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 2})
		}},
		{"fewer keys than queries", func() {
			l.Attention(f(4, 6), f(4, 6), f(3, 6), f(3, 6), f(3, 4), tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3})
		}},
		{"sequences of uneven length", func() {
			l.Attention(f(5, 6), f(5, 6), f(5, 6), f(5, 6), f(3, 5), tensorops.AttentionOpts{Batch: 2, Heads: 3, KVHeads: 3})
		}},
		{"no sequences", func() {
			l.Attention(f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(3, 4), tensorops.AttentionOpts{Heads: 3, KVHeads: 3})
		}},
		{"dk of another shape", func() {
			l.AttentionGrad(f(4, 6), f(4, 5), f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(3, 4),
				tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3})
		}},
		{"a window before the first key", func() {
			l.Attention(f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(3, 4),
				tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3, Whole: true, Window: 2, Before: 3})
		}},
		{"positions before causal queries", func() {
			l.Attention(f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(3, 4), tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3, Before: 4})
		}},
		{"starts of the keys", func() {
			l.Attention(f(2, 6), f(2, 6), f(4, 6), f(4, 6), f(3, 2), tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3, Starts: i(4)})
		}},
		{"starts in float32", func() {
			l.AttentionGrad(f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(3, 4),
				tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3, Starts: f(4)})
		}},
		{"a soft cap below zero", func() {
			l.Attention(f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(3, 4), tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3, SoftCap: -1})
		}},
		{"a scale that is not a number", func() {
			l.Attention(f(4, 6), f(4, 6), f(4, 6), f(4, 6), f(3, 4), tensorops.AttentionOpts{Batch: 1, Heads: 3, KVHeads: 3,
				Scale: math.NaN()})
		}},
		{"sinks for other heads", func() { l.AttentionSink(f(4, 6), f(3, 4), f(2), tensorops.AttentionOpts{Batch: 1, Heads: 3}) }},
		{"sinks of no sequence", func() { l.AttentionSinkGrad(f(3), f(4, 6), f(4, 6), f(3, 4), f(3), tensorops.AttentionOpts{Heads: 3}) }},
		{"more experts of a row than there are", func() {
			l.Route(f(4, 3), f(4, 5), i(4, 5), i(4, 5), i(4), f(4, 3), none, tensorops.RouteOpts{})
		}},
		{"offsets of other experts", func() { l.Route(f(4, 3), f(4, 2), i(4, 2), i(4, 2), i(3), f(4, 3), none, tensorops.RouteOpts{}) }},
		{"groups of one expert", func() {
			l.Route(f(4, 3), f(4, 2), i(4, 2), i(4, 2), i(4), f(4, 3), none, tensorops.RouteOpts{Groups: 3, TopGroups: 2})
		}},
		{"groups that do not divide the experts", func() {
			l.Route(f(4, 5), f(4, 2), i(4, 2), i(4, 2), i(6), f(4, 5), none, tensorops.RouteOpts{Groups: 2, TopGroups: 1})
		}},
		{"more experts of a row than its groups have", func() {
			l.Route(f(4, 6), f(4, 3), i(4, 3), i(4, 3), i(7), f(4, 6), none, tensorops.RouteOpts{Groups: 3, TopGroups: 1})
		}},
		{"a z-loss without logits", func() {
			l.RouteGrad(f(4, 3), f(4, 2), f(4, 3), i(4, 2), i(4), none, tensorops.RouteOpts{ZLoss: 1})
		}},
		{"sequences of other rows", func() {
			l.RouteGrad(f(4, 3), f(4, 2), f(4, 3), i(4, 2), i(4), none, tensorops.RouteOpts{Sequences: 3})
		}},
		{"loads of fewer sequences", func() {
			l.RouteGrad(f(4, 3), f(4, 2), f(4, 3), i(4, 2), i(4), none, tensorops.RouteOpts{Sequences: 2, Loads: f(1, 3)})
		}},
		{"statistics of other experts", func() { l.RouteStats(d(3), f(4, 3), i(4, 2), i(4), none, tensorops.RouteOpts{}) }},
		{"counts of runs that do not divide the rows", func() { l.RouteCount(f(3, 4), i(4, 2)) }},
		{"counts of fewer experts than a row has", func() { l.RouteCount(f(2), i(4, 3)) }},
		{"a bias of other experts", func() { l.RouteBias(f(3), f(4), 1) }},
		{"loads of other experts", func() { l.BalanceLoads(f(4, 3), none, f(4, 3), i(4, 2), f(4), tensorops.BalanceOpts{}) }},
		{"gates of other rows", func() { l.RowGate(f(4, 5), f(4, 5), f(5)) }},
		{"gradients of gates of other rows", func() { l.RowGateGrad(f(4, 5), f(3), f(4, 5), f(4, 5), f(4)) }},
		{"rows too few for their places", func() { l.Dispatch(f(7, 5), f(4, 5), i(4, 2)) }},
		{"places of other rows", func() { l.Combine(f(4, 5), f(8, 5), i(2, 4), none) }},
		{"weights of fewer places", func() { l.WeighRows(f(8, 5), f(8, 5), f(4, 1), f(4, 2), i(4, 2)) }},
		{"a matrix too few", func() { l.GroupedMatMul(f(8, 6), f(8, 5), f(2, 5, 6), i(4), tensorops.GroupedOpts{}) }},
		{"a gradient of other experts", func() { l.GroupedWeightGrad(f(2, 6, 5), f(8, 6), f(8, 5), i(4), false) }},
		{"a gradient of no source", func() { l.SourceWeightGrad(f(2, 6, 5), f(8, 6), f(8, 5), i(7), 3, 3, false) }},
		{"offsets that sources do not divide", func() { l.SourceWeightGrad(f(2, 6, 5), f(8, 6), f(8, 5), i(6), 0, 3, false) }},
		{"a product of parts that do not divide", func() {
			l.GroupedMatMul(f(8, 6), f(8, 5), f(2, 5, 6), i(4), tensorops.GroupedOpts{Sources: 2})
		}},
		{"weights of other rows", func() { l.WeighOwnRows(f(8, 5), f(8, 5), f(4, 1), f(4, 1), i(3)) }},
		{"a table of other sources", func() { l.SourceOffsets(i(6), i(2, 6), 0) }},
		{"offsets of no rank", func() { l.SourceOffsets(i(5), i(2, 5), 2) }},
		{"biases of other experts", func() {
			l.GroupedMatMul(f(8, 6), f(8, 5), f(3, 5, 6), i(4), tensorops.GroupedOpts{Bias: f(2, 6)})
		}},
		{"a bias of a sum", func() {
			l.GroupedMatMul(f(8, 6), f(8, 5), f(3, 5, 6), i(4), tensorops.GroupedOpts{Bias: f(3, 6), Accumulate: true})
		}},
		{"packed matrices of other experts", func() {
			l.GroupedMatMul(f(8, 6), f(8, 5), f(3, 5, 6), i(4), tensorops.GroupedOpts{Packed: f(2 * 32 * 32)})
		}},
		{"packed matrices for fewer experts", func() { l.PackExperts(f(2*32*32), f(3, 5, 6), 3, false, false) }},
		{"sums of other experts", func() { l.GroupedColSum(f(2, 5), f(8, 5), i(4), none, none) }},
		{"weights without places", func() { l.GroupedColSum(f(3, 5), f(8, 5), i(4), f(4, 2), none) }},
		{"sums of no source", func() { l.SourceColSum(f(2, 5), f(8, 5), i(7), none, 3, 3) }},
		{"weights of fewer rows", func() { l.SourceColSum(f(2, 5), f(8, 5), i(7), f(7, 1), 2, 3) }},
		{"biases of another width", func() { l.WeighBias(f(4, 2), f(4, 5), f(3, 6), i(4, 2)) }},
		{"stats in float32", func() { l.CrossEntropy(f(2), d(4), f(4, 9), i(4), tensorops.CrossEntropyOpts{}) }},
		{"an empty vocabulary", func() { l.CrossEntropy(d(2), d(4), f(4, 0), i(4), tensorops.CrossEntropyOpts{}) }},
		{"a target too few", func() { l.CrossEntropy(d(2), d(4), f(4, 9), i(3), tensorops.CrossEntropyOpts{}) }},
		{"a gradient of another shape", func() { l.CrossEntropy(d(2), d(4), f(4, 9), i(4), tensorops.CrossEntropyOpts{Grad: f(4, 8)}) }},
		{"parts too few", func() { l.CrossEntropyPart(d(4), f(4, 9), i(4), tensorops.VocabSlice{Vocab: 9}) }},
		{"a slice beyond the vocabulary", func() { l.CrossEntropyPart(d(8), f(4, 9), i(4), tensorops.VocabSlice{First: 1, Vocab: 9}) }},
		{"half a slice's parts", func() {
			l.CrossEntropyJoin(d(2), d(4), d(12), i(4), none, tensorops.VocabSlice{}, tensorops.CrossEntropyOpts{})
		}},
		{"a gradient without logits", func() {
			l.CrossEntropyJoin(d(2), d(4), d(16), i(4), none, tensorops.VocabSlice{Vocab: 9}, tensorops.CrossEntropyOpts{Grad: f(4, 9)})
		}},
		{"more ids than a vocabulary", func() {
			l.Distill(d(3), f(4, 2), i(4), i(4, 3), f(4, 4), tensorops.DistillOpts{Temperature: 1})
		}},
		{"no log-probability of the others", func() {
			l.Distill(d(3), f(4, 9), i(4), i(4, 3), f(4, 3), tensorops.DistillOpts{Temperature: 1})
		}},
		{"a temperature of 0", func() { l.Distill(d(3), f(4, 9), i(4), i(4, 3), f(4, 4), tensorops.DistillOpts{}) }},
		{"a weight above 1", func() {
			l.Distill(d(3), f(4, 9), i(4), i(4, 3), f(4, 4), tensorops.DistillOpts{Temperature: 1, Weight: 2})
		}},
		{"columns to fill", func() { l.Fill(columns(2, 3), 0) }},
		{"another shape", func() { l.Copy(f(2, 3), f(3, 2)) }},
		{"another shape", func() { l.PeerCopy(f(2, 3), f(3, 2)) }},
		{"columns", func() { l.PeerCopy(f(2, 3), f(2, 5).Columns(0, 3)) }},
		{"a byte too few", func() { l.Upload(f(4), make([]byte, 15)) }},
		{"a byte too many", func() { l.Fetch(make([]byte, 17), f(4)) }},
		{"a sum in float32", func() { l.SquaredNorm(f(1), f(4)) }},
		{"a step 0", func() { l.AdamW(f(4), f(4), f(4), f(4), tensorops.AdamWOpts{}) }},
		{"a momentum too short", func() { l.SGD(f(4), f(3), f(4), tensorops.SGDOpts{}) }},
		{"no group", func() { l.AllReduce(f(4), tensorops.Sum, nil) }},
		{"a time before now", func() { l.Spin(-1) }},
	} {
		test.record()
		err := l.Err()
		if !errors.Is(err, tensorops.ErrShape) && !errors.Is(err, tensorops.ErrOutOfMemory) {
			t.Errorf("%s: error %v", test.what, err)
		}
		fmt.Fprintf(&b, "%s:\n    %v\n", test.what, err)
		l.Reset()
	}
	golden(t, "testdata/list_errors.txt", b.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wantLines := strings.Split(string(want), "\n")
	for n, line := range strings.Split(got, "\n") {
		if n >= len(wantLines) || line != wantLines[n] {
			t.Fatalf("%s:%d: got %q; run with -update if it is right", file, n+1, line)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has more lines than were written", file)
	}
}

// TestFirstErrorSticks: after an error nothing is recorded, and nothing breaks.
func TestFirstErrorSticks(t *testing.T) {
	l := newList()
	x := l.Alloc(tensorops.Float32, 4)
	l.Fill(x, 1)
	l.GELU(x, l.Alloc(tensorops.Float32, 5))
	first := l.Err()
	if first == nil {
		t.Fatal("no error")
	}
	recorded := len(l.Ops())
	y := l.Alloc(tensorops.Float32, 6)
	if y.Valid() || l.AllocLike(x).Valid() {
		t.Error("Alloc gives tensors after an error")
	}
	l.Add(y, y.View(3, 2).Columns(0, 1), x)
	l.MatMul(y, y, y, tensorops.MatMulOpts{Bias: y})
	l.Fail(errors.New("another"))
	l.Free(y)
	l.Free(x)
	if !errors.Is(l.Err(), first) || len(l.Ops()) != recorded {
		t.Errorf("%d operations, then %d; error %v, first %v", recorded, len(l.Ops()), l.Err(), first)
	}
	l.Reset()
	l.Spin(0)
	if l.Err() != nil || len(l.Ops()) != 1 {
		t.Errorf("after Reset: %d operations, error %v", len(l.Ops()), l.Err())
	}
}

func TestFail(t *testing.T) {
	l, cause := newList(), errors.New("no such layer")
	l.Fail(cause)
	l.Spin(0)
	if !errors.Is(l.Err(), cause) || len(l.Ops()) != 0 {
		t.Errorf("error %v with %d operations", l.Err(), len(l.Ops()))
	}
}

// TestFreeInStreamOrder: what a list frees of its own stream is there for its
// next operation; what belongs to another goes home when the list is complete.
func TestFreeInStreamOrder(t *testing.T) {
	m := tensorops.NewHostMemory(0)
	own, other := m.NewArena("own"), m.NewArena("other")
	l := tensorops.NewList(own, nil)
	x := l.Alloc(tensorops.Float32, 100)
	l.Free(x)
	y := l.Alloc(tensorops.Float32, 100)
	if y.Buffer() != x.Buffer() {
		t.Error("the freed buffer was not given again")
	}
	away, err := tensorops.NewTensor(other, tensorops.Float32, 100)
	if err != nil {
		t.Fatal(err)
	}
	before := m.Stats().InUse
	l.Free(away.RowRange(0, 1)) // a view frees what it views
	if m.Stats().InUse != before {
		t.Error("the other stream's buffer went home before the list was complete")
	}
	l.Complete()
	if got := m.Stats().InUse; got >= before {
		t.Errorf("%d bytes in use after the list was complete, %d before", got, before)
	}
	l.Complete() // once more does no harm
	l.Free(y)
	if got := m.Stats().InUse; got != 0 {
		t.Errorf("%d bytes in use in the end", got)
	}
}

func TestDoubleFree(t *testing.T) {
	m := tensorops.NewHostMemory(0)
	own, other := m.NewArena("own"), m.NewArena("other")
	for _, test := range []struct {
		free func(l *tensorops.List, x tensorops.Tensor)
		want string
	}{
		{func(l *tensorops.List, x tensorops.Tensor) { l.Free(x); l.Free(x) }, "float32[3 4] is freed twice"},
		{func(l *tensorops.List, x tensorops.Tensor) { l.Free(x); l.Free(x.RowRange(0, 1)) }, "float32[1 4] is freed twice"},
		{func(l *tensorops.List, x tensorops.Tensor) { l.Free(x); l.Complete(); l.Free(x) }, "float32[3 4] is freed twice"},
		{func(l *tensorops.List, x tensorops.Tensor) { x.Release(); l.Free(x) }, "float32[3 4] is freed twice"},
		{func(l *tensorops.List, x tensorops.Tensor) { l.Free(x); x.Release() }, "float32[3 4] is released twice"},
		{func(_ *tensorops.List, x tensorops.Tensor) { x.Release(); x.Release() }, "float32[3 4] is released twice"},
	} {
		for _, home := range []tensorops.Arena{own, other} {
			x, err := tensorops.NewTensor(home, tensorops.Float32, 3, 4)
			if err != nil {
				t.Fatal(err)
			}
			mustPanic(t, "tensorops: the buffer of "+test.want, func() { test.free(tensorops.NewList(own, nil), x) })
		}
	}
	var none tensorops.Tensor
	l := newList()
	l.Free(none)
	l.Free(none)
	none.Release()
	if l.Err() != nil {
		t.Errorf("freeing none: %v", l.Err())
	}
}

// TestElementBytes: a device may store elements in more bytes than their type
// has.
func TestElementBytes(t *testing.T) {
	l := tensorops.NewList(newArena(), func(tensorops.DType) int { return 8 })
	x := l.Alloc(tensorops.Float32, 50, 20)
	if got := len(tensorops.Elements[float64](x)); got != 1000 {
		t.Errorf("%d elements", got)
	}
}

// TestRecordingAllocatesNothing: a list that is used again is the same piece of
// memory, and so are its tensors'.
func TestRecordingAllocatesNothing(t *testing.T) {
	l := newList()
	record := func() {
		x := l.Alloc(tensorops.Float32, 8, 16)
		y := l.AllocLike(x)
		l.Fill(x, 1)
		l.MatMul(l.Alloc(tensorops.Float32, 8, 8).View(8, 8), x, y, tensorops.MatMulOpts{TransB: true})
		l.GELU(y, x)
		l.Free(l.Ops()[1].MatMul().C)
		l.Free(x)
		l.Free(y)
		if l.Err() != nil {
			t.Fatal(l.Err())
		}
		l.Complete()
		l.Reset()
	}
	record()
	if n := testing.AllocsPerRun(100, record); n != 0 {
		t.Errorf("%g allocations for a list that was recorded before", n)
	}
}
