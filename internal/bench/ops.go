package bench

import (
	"context"
	"fmt"
	"math"

	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// operation is an operation of a layer with its minimum cost. Either arithmetic or memory limits its speed.
type operation struct {
	name   string
	size   string
	dtype  string
	flops  float64            // 0: memory limits it
	moves  []tensorops.Tensor // tensors that it reads or writes; one entry for each read or write
	record func(l *tensorops.List)
}

// bytes returns the number of bytes that the operation reads and writes.
func (o *operation) bytes() int64 {
	var n int64
	for _, t := range o.moves {
		n += int64(t.Len()) * int64(t.DType().Size())
	}
	return n
}

// OpResult is the speed of one operation.
type OpResult struct {
	Op      string   `json:"op"`
	Size    string   `json:"size"`
	DType   string   `json:"dtype"`
	Threads int      `json:"threads"`
	Kernels string   `json:"kernels"`
	By      string   `json:"by,omitempty"`    // code that computes a product on a GPU: byLibrary or byKernels
	FLOPs   float64  `json:"flops,omitempty"` // if arithmetic limits it
	Bytes   int64    `json:"bytes,omitempty"` // if memory limits it
	MS      Summary  `json:"ms"`
	GFLOPS  *Summary `json:"gflops,omitempty"`   // if arithmetic limits it
	GBPerS  *Summary `json:"gb_per_s,omitempty"` // if memory limits it
	OfCopy  *float64 `json:"of_copy,omitempty"`  // its speed divided by the speed of a copy of the same number of bytes
}

// Ops measures the operations of a model's layers one by one, on the configuration's device and in its dtype, and reports each.
func Ops(ctx context.Context, load Load, seconds float64, report func(OpResult) error) error {
	c, err := load(SizesOnly)
	if err != nil {
		return err
	}
	dev, err := device.Open(c)
	if err != nil {
		return err
	}
	b, err := newHarness(dev)
	if err != nil {
		return err
	}
	defer b.close()
	m, err := newLayer(b, sizes(c), c.Batch.Sequences, c.Device.DType)
	if err != nil {
		return err
	}
	defer m.ids.Release()
	for _, group := range []func(){m.embedding, m.norms, m.linears, m.attention, m.activation, m.moves, m.loss, m.optimizer, m.update} {
		if err := m.measure(ctx, group, seconds, report); err != nil {
			return err
		}
	}
	return nil
}

// measure times an operation. If memory limits it, a copy is timed in turn with it.
func (b *harness) measure(ctx context.Context, op *operation, seconds float64) (r OpResult, err error) {
	defer func(before cuda.Work) { r.By = b.by(before) }(b.work())
	r = OpResult{Op: op.name, Size: op.size, DType: op.dtype, Threads: b.dev.Threads(), Kernels: b.dev.Path(), FLOPs: op.flops}
	if op.flops > 0 {
		ms, err := sample(ctx, seconds, b.least, b.timed(op.record))
		if err != nil {
			return r, err
		}
		rate := ms[0].per(op.flops / 1e6)
		r.MS, r.GFLOPS = ms[0], &rate
		return r, nil
	}
	r.Bytes = op.bytes()
	// A copy reads and writes: half of the bytes each.
	from, err := b.numbers(tensorops.Float32, int(r.Bytes/8)/copyWidth+1, copyWidth)
	if err != nil {
		return r, err
	}
	defer from.Release()
	to, err := b.numbers(tensorops.Float32, from.Shape()...)
	if err != nil {
		return r, err
	}
	defer to.Release()
	ms, err := sample(ctx, seconds, b.least, b.timed(op.record), b.timed(func(l *tensorops.List) { l.Copy(to, from) }))
	if err != nil {
		return r, err
	}
	rate := ms[0].per(float64(r.Bytes) / 1e6)
	ofCopy := ms[1].Median / ms[0].Median
	r.MS, r.GBPerS, r.OfCopy = ms[0], &rate, &ofCopy
	return r, nil
}

// Code that computes products on a GPU.
const (
	byLibrary = "cuBLASLt"
	byKernels = "own kernels"
)

// work returns what a GPU has done so far; it is empty on a CPU.
func (b *harness) work() cuda.Work {
	is, _ := device.Work(b.dev)
	return is
}

// by names the code that has computed products since before; "": there were none.
func (b *harness) by(before cuda.Work) string {
	switch now := b.work(); {
	case now.KernelProducts > before.KernelProducts:
		return byKernels
	case now.LibraryProducts > before.LibraryProducts:
		return byLibrary
	default:
		return ""
	}
}

// copyWidth is the length of a copy's rows, by which it is split over cores.
const copyWidth = 1024

// layer describes the operations of a model's embedding, one decoder layer and
// head, in groups.
type layer struct {
	harness *harness
	cfg     stages.Config
	b, t    int  // sequences, positions
	bf16    bool // products
	ids     tensorops.Tensor

	// The group in progress.
	operations []operation
	tensors    []tensorops.Tensor
	err        error // the first of making tensors
}

func newLayer(b *harness, c stages.Config, sequences int, dtype string) (*layer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &layer{harness: b, cfg: c, b: sequences, t: c.Context, bf16: dtype == bfloat16}
	key := rng.NewKey(1, rng.StringStream("bench ids"))
	ids := make([]int32, m.rows())
	for i := range ids {
		ids[i] = int32(rng.Intn(key, 0, uint64(i), uint64(c.Vocab)))
	}
	var err error
	m.ids, err = b.upload(tensorops.Int32, tensorops.HostBytes(ids), len(ids))
	return m, err
}

// measure times the operations of a group and then frees its tensors.
func (m *layer) measure(ctx context.Context, group func(), seconds float64, report func(OpResult) error) error {
	m.operations, m.tensors = nil, nil
	defer func() {
		for _, t := range m.tensors {
			t.Release()
		}
	}()
	if group(); m.err != nil {
		return m.err
	}
	for _, op := range m.operations {
		r, err := m.harness.measure(ctx, &op, seconds)
		if err != nil {
			return fmt.Errorf("%s: %w", op.name, err)
		}
		if err := report(r); err != nil {
			return err
		}
	}
	return nil
}

func (m *layer) rows() int { return m.b * m.t }

// tensor makes an empty tensor, floats one of random numbers.
func (m *layer) tensor(d tensorops.DType, dims ...int) (t tensorops.Tensor) {
	if m.err == nil {
		t, m.err = tensorops.NewTensor(m.harness.stream.Arena(), d, dims...)
		m.tensors = append(m.tensors, t)
	}
	return t
}

// ones returns a tensor of ones.
func (m *layer) ones(dims ...int) (t tensorops.Tensor) {
	if m.err == nil {
		t, m.err = m.harness.make(tensorops.Float32, func(l *tensorops.List, t tensorops.Tensor) { l.Fill(t, 1) }, dims...)
		m.tensors = append(m.tensors, t)
	}
	return t
}

// acts returns random activations in the configuration's dtype.
func (m *layer) acts(dims ...int) (t tensorops.Tensor) {
	if m.bf16 {
		return m.numbers(tensorops.BFloat16, dims...)
	}
	return m.floats(dims...)
}

func (m *layer) floats(dims ...int) tensorops.Tensor { return m.numbers(tensorops.Float32, dims...) }

func (m *layer) numbers(d tensorops.DType, dims ...int) (t tensorops.Tensor) {
	if m.err == nil {
		t, m.err = m.harness.numbers(d, dims...)
		m.tensors = append(m.tensors, t)
	}
	return t
}

// moving adds an operation that memory limits. An operation is repeated many times. If it scaled its own input, the numbers
// would become denormal, which is slow; so its output is another tensor.
func (m *layer) moving(name, size string, record func(l *tensorops.List), moves ...tensorops.Tensor) {
	dtype := float32Name
	if len(moves) > 0 && moves[0].DType() == tensorops.BFloat16 {
		dtype = bfloat16
	}
	m.operations = append(m.operations, operation{name: name, size: size, dtype: dtype, moves: moves, record: record})
}

// computing adds an operation that arithmetic limits.
func (m *layer) computing(name, size string, flops float64, record func(l *tensorops.List)) {
	dtype := float32Name
	if m.bf16 {
		dtype = bfloat16
	}
	m.operations = append(m.operations, operation{name: name, size: size, dtype: dtype, flops: flops, record: record})
}

// multiplying adds a product in the configuration's dtype.
func (m *layer) multiplying(name string, s Shape, o tensorops.MatMulOpts, c, a, b tensorops.Tensor) {
	o.BF16 = m.bf16
	m.computing(name, s.String(), s.FLOPs(), func(l *tensorops.List) { l.MatMul(c, a, b, o) })
}

func (m *layer) embedding() {
	n, c := m.rows(), m.cfg.Hidden
	size := fmt.Sprintf("%dx%d", n, c)
	y, w := m.acts(n, c), m.floats(m.cfg.Vocab, c)
	m.moving("embed", size, func(l *tensorops.List) { l.Embed(y, w, m.ids) }, y, y)
	m.moving("embed, gradient", size, func(l *tensorops.List) { l.EmbedGrad(w, y, m.ids) }, y, y, y)
	if m.cfg.Family != stages.GPT2 {
		return
	}
	p := m.floats(m.t, c)
	m.moving("positions", size, func(l *tensorops.List) { l.AddPositions(y, y, p, tensorops.PositionOpts{Period: m.t}) }, y, y, p)
	m.moving("positions, gradient", size, func(l *tensorops.List) { l.PositionsGrad(p, y, tensorops.PositionOpts{Period: m.t}) }, y, p, p)
}

func (m *layer) norms() {
	n, c := m.rows(), m.cfg.Hidden
	size := fmt.Sprintf("%dx%d", n, c)
	x, y, dx, gamma, beta := m.acts(n, c), m.acts(n, c), m.acts(n, c), m.floats(c), m.floats(c)
	const eps = 1e-5
	if m.cfg.Family != stages.GPT2 {
		stats, rms := m.floats(n), tensorops.RMSNormOpts{Eps: eps}
		m.moving("RMSNorm", size, func(l *tensorops.List) { l.RMSNorm(y, x, gamma, stats, rms) }, x, y)
		m.moving("RMSNorm, gradient", size, func(l *tensorops.List) { l.RMSNormGrad(dx, y, x, gamma, stats, x, rms) }, x, x, y, dx)
		m.moving("RMSNorm, weight gradient", size, func(l *tensorops.List) { l.RMSNormWeightGrad(gamma, y, x, stats) }, x, y)
		return
	}
	stats := m.floats(n, 2)
	m.moving("LayerNorm", size, func(l *tensorops.List) { l.LayerNorm(y, x, gamma, beta, stats, eps) }, x, y)
	m.moving("LayerNorm, gradient", size, func(l *tensorops.List) { l.LayerNormGrad(dx, y, x, gamma, stats, x) }, x, x, y, dx)
	m.moving("LayerNorm, weight gradient", size, func(l *tensorops.List) { l.LayerNormWeightGrad(gamma, beta, y, x, stats) }, x, y)
}

// linears are the matrix products: forward, input gradient and weight gradient.
func (m *layer) linears() {
	c, f, q, kv := m.cfg.Hidden, m.cfg.FFN, m.cfg.QueryWidth(), m.cfg.KVWidth()
	gpt2 := m.cfg.Family == stages.GPT2
	if gpt2 {
		m.linear("qkv", c, 3*c, gpt2)
	} else {
		m.linear("query", c, q, gpt2)
		m.linear("key, value", c, kv, gpt2)
	}
	m.linear("projection", q, c, gpt2)
	m.linear("up", c, f, gpt2)
	m.linear("down", f, c, gpt2)
	m.linear("head", c, m.cfg.Vocab, false)
}

// linear is y = x·W. GPT-2 stores its layers' weights as in × out, with a bias;
// the head and Llama as out × in, without.
func (m *layer) linear(name string, in, out int, gpt2 bool) {
	n := m.rows()
	x, y := m.acts(n, in), m.acts(n, out)
	w, bias := m.floats(out, in), tensorops.Tensor{}
	if gpt2 {
		w, bias = m.floats(in, out), m.floats(out)
	}
	m.multiplying(name, Shape{n, out, in}, tensorops.MatMulOpts{TransB: !gpt2, Bias: bias}, y, x, w)
	m.multiplying(name+", gradient", Shape{n, in, out}, tensorops.MatMulOpts{TransB: gpt2}, x, y, w)
	a, b := y, x
	if gpt2 {
		a, b = x, y
	}
	m.multiplying(name+", weight gradient", Shape{a.Cols(), b.Cols(), n}, tensorops.MatMulOpts{TransA: true, Accumulate: true}, w, a, b)
	if gpt2 {
		m.moving(name+", bias gradient", fmt.Sprintf("%dx%d", n, out), func(l *tensorops.List) { l.ColSum(bias, y) }, y)
	}
}

// attention counts the pairs of positions that a causal mask leaves: half of all pairs.
func (m *layer) attention() {
	n, c, h, kv := m.rows(), m.cfg.QueryWidth(), m.cfg.Heads, m.cfg.KVWidth()
	q, k, v, o := m.acts(n, c), m.acts(n, kv), m.acts(n, kv), m.acts(n, c)
	dq, dk, dv, do := m.acts(n, c), m.acts(n, kv), m.acts(n, kv), m.acts(n, c)
	lse := m.floats(m.b, h, m.t)
	if m.cfg.Family != stages.GPT2 {
		r := tensorops.RoPEOpts{Heads: h, Period: m.t, Rotation: rotation(m.cfg.RopeTheta, c/h/2)}
		m.moving("RoPE", fmt.Sprintf("%dx%d", n, c), func(l *tensorops.List) { l.RoPE(q, r) }, q, q)
	}
	opts := tensorops.AttentionOpts{Batch: m.b, Heads: h, KVHeads: m.cfg.KVHeads, Window: m.cfg.Window, BF16: m.bf16}
	size := fmt.Sprintf("%dx%dx%d, %d heads", m.b, m.t, c, h)
	product := float64(n) * float64(m.t+1) * float64(c) // of one of its two products
	m.computing("attention", size, 2*product, func(l *tensorops.List) { l.Attention(o, q, k, v, lse, opts) })
	m.computing("attention, gradient", size, 5*product, func(l *tensorops.List) { l.AttentionGrad(dq, dk, dv, do, q, k, v, o, lse, opts) })
	packed, each := opts, max(1, m.t/documents)
	packed.Starts = m.starts(each)
	size += fmt.Sprintf(", documents of %d", each)
	product = float64(n) * float64(each+1) * float64(c)
	m.computing("attention of documents", size, 2*product, func(l *tensorops.List) { l.Attention(o, q, k, v, lse, packed) })
	m.computing("attention of documents, gradient", size, 5*product, func(l *tensorops.List) {
		l.AttentionGrad(dq, dk, dv, do, q, k, v, o, lse, packed)
	})
}

// documents is how many share a sequence.
const documents = 8

// starts are those of documents that have so many tokens each.
func (m *layer) starts(each int) (t tensorops.Tensor) {
	of := make([]int32, m.rows())
	for i := range of {
		of[i] = int32(i % m.t / each * each)
	}
	if m.err == nil {
		t, m.err = m.harness.upload(tensorops.Int32, tensorops.HostBytes(of), m.b, m.t)
		m.tensors = append(m.tensors, t)
	}
	return t
}

// rotation is the usual one of a base.
func rotation(theta float64, pairs int) *tensorops.Rotation {
	frequencies := make([]float64, pairs)
	for i := range frequencies {
		frequencies[i] = math.Pow(theta, -float64(i)/float64(pairs))
	}
	return tensorops.NewRotation(frequencies, 1)
}

func (m *layer) activation() {
	n, f := m.rows(), m.cfg.FFN
	size := fmt.Sprintf("%dx%d", n, f)
	x, y, dx := m.acts(n, f), m.acts(n, f), m.acts(n, f)
	if m.cfg.Family == stages.GPT2 {
		m.moving("GELU", size, func(l *tensorops.List) { l.GELU(y, x) }, x, y)
		m.moving("GELU, gradient", size, func(l *tensorops.List) { l.GELUGrad(dx, y, x) }, x, y, dx)
		return
	}
	up, dup := m.acts(n, f), m.acts(n, f)
	m.moving("SwiGLU", size, func(l *tensorops.List) { l.SwiGLU(y, x, up) }, x, up, y)
	m.moving("SwiGLU, gradient", size, func(l *tensorops.List) { l.SwiGLUGrad(dx, dup, y, x, up) }, x, up, y, dx, dup)
}

func (m *layer) moves() {
	n, c := m.rows(), m.cfg.Hidden
	size := fmt.Sprintf("%dx%d", n, c)
	x, y, z := m.acts(n, c), m.acts(n, c), m.acts(n, c)
	m.moving("residual", size, func(l *tensorops.List) { l.Dropout(z, y, x, tensorops.Mask{}) }, x, y, z)
	m.moving("dropout", size, func(l *tensorops.List) { l.Dropout(z, y, x, tensorops.Mask{P: 0.1}) }, x, y, z)
	m.moving("copy", size, func(l *tensorops.List) { l.Copy(y, x) }, x, y)
}

func (m *layer) loss() {
	n, v := m.rows(), m.cfg.Vocab
	size := fmt.Sprintf("%dx%d", n, v)
	logits, grad := m.acts(n, v), m.acts(n, v)
	lse, stats := m.tensor(tensorops.Float64, n), m.tensor(tensorops.Float64, tensorops.LossStats)
	m.moving("cross-entropy", size, func(l *tensorops.List) { l.CrossEntropy(stats, lse, logits, m.ids, tensorops.CrossEntropyOpts{}) },
		logits)
	m.moving("cross-entropy with its gradient", size, func(l *tensorops.List) {
		l.CrossEntropy(stats, lse, logits, m.ids, tensorops.CrossEntropyOpts{Grad: grad, Scale: 1e-3})
	}, logits, grad)
}

// optimizer adds the optimizer's operations on the weights of one decoder layer.
func (m *layer) optimizer() {
	one := m.cfg
	one.Full, one.NoRope, one.Experts.Dense = nil, nil, nil // they name layers that are left out here
	none := one
	one.Layers, none.Layers = 1, 0
	n := int(one.Parameters() - none.Parameters())
	w, mean, square, g := m.floats(n), m.floats(n), m.ones(n), m.floats(n) // random numbers would have no roots
	sum := m.tensor(tensorops.Float64, 1)
	m.moving("gradient norm", fmt.Sprint(n), func(l *tensorops.List) { l.SquaredNorm(sum, g) }, g)
	m.moving("AdamW", fmt.Sprint(n), func(l *tensorops.List) { l.AdamW(w, mean, square, g, adamW) }, w, w, mean, mean, square, square, g)
}

var adamW = tensorops.AdamWOpts{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, GradScale: 1, Step: 1}

// update adds the update of a whole model, parameter by parameter.
func (m *layer) update() {
	model, err := stages.NewModel(m.cfg)
	if err != nil {
		m.err = err
		return
	}
	var parameters [][4]tensorops.Tensor
	var moves []tensorops.Tensor
	var all int
	for _, p := range model.Params {
		n := p.Len()
		w, mean, square, g := m.floats(n), m.floats(n), m.ones(n), m.floats(n)
		parameters = append(parameters, [4]tensorops.Tensor{w, mean, square, g})
		moves = append(moves, w, w, mean, mean, square, square, g)
		all += n
	}
	m.moving("AdamW, all parameters", fmt.Sprint(all), func(l *tensorops.List) {
		for _, p := range parameters {
			l.AdamW(p[0], p[1], p[2], p[3], adamW)
		}
	}, moves...)
}
