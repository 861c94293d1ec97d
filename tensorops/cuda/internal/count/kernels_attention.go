package count

// Arguments of attention.cuh.
type (
	attentionSizes struct {
		Mask                          mask
		TQ, TK, Heads, KVHeads, Width int32
		Scale                         float32
		Dropped                       int32
		Quads                         int32
		Window                        int32
		Reach                         int32
	}
	attentionArgs struct {
		O, LSE, Q, K, V                    uint64
		OStride, QStride, KStride, VStride int64
		Sizes                              attentionSizes
	}
	attentionGradArgs struct {
		DQ, DK, DV, DO, Q, K, V, O, LSE, Delta uint64
		DQStride, DKStride, DVStride, DOStride int64
		QStride, KStride, VStride, OStride     int64
		Queries                                int64
		Sizes                                  attentionSizes
	}
)

// queries is a matrix with a row for each query and all heads, and keys one with a row for each key.
func (s *attentionSizes) queries(at uint64, stride, sequences int64) Operand {
	return matrix(at, sequences*int64(s.TQ), int64(s.Heads)*int64(s.Width), stride, 4).again()
}

// keys are all, but for those that no window reaches.
func (s *attentionSizes) keys(at uint64, stride, sequences int64) Operand {
	all := matrix(at, sequences*int64(s.TK), int64(s.KVHeads)*int64(s.Width), stride, 4)
	if s.Window != 0 {
		return all.some()
	}
	return all.again()
}

// mask is what its counters are read by.
func (s *attentionSizes) counters() Operand {
	if s.Dropped == 0 {
		return Operand{}
	}
	return s.Mask.counters()
}

// pairs are how many queries and keys of a sequence and head see each other.
func (s *attentionSizes) pairs() (n float64) {
	for i := range int(s.TQ) {
		n += float64(min(i+1+int(s.TK-s.TQ), int(s.Reach)))
	}
	return n
}

// sequences are as many as a grid has tiles of rows for.
func (s *attentionSizes) sequences(e *Event, rows, tile, heads int32) int64 {
	return int64(e.Grid[0]) / int64((rows+tile-1)/tile) / int64(heads)
}

// flops are those of so many products of a query's and a key's channels for each pair.
func (s *attentionSizes) flops(products int, sequences int64) float64 {
	return 2 * float64(products) * float64(s.Width) * s.pairs() * float64(s.Heads) * float64(sequences)
}

// attended is the forward pass, of tiles of that many queries: scores, and what is made of values.
func attended(tile int32) func(a *attentionArgs, e *Event, c *Cost) {
	return func(a *attentionArgs, e *Event, c *Cost) {
		s := &a.Sizes
		n := s.sequences(e, s.TQ, tile, s.Heads)
		c.FLOPs = s.flops(2, n)
		c.writes(s.queries(a.O, a.OStride, n), array(a.LSE, n*int64(s.Heads)*int64(s.TQ), 4))
		c.reads(s.queries(a.Q, a.QStride, n), s.keys(a.K, a.KStride, n), s.keys(a.V, a.VStride, n), s.counters())
	}
}

// reads are what both kernels of the gradient read.
func (a *attentionGradArgs) reads(c *Cost, n int64) {
	s := &a.Sizes
	each := n * int64(s.Heads) * int64(s.TQ)
	c.reads(s.queries(a.Q, a.QStride, n), s.keys(a.K, a.KStride, n), s.keys(a.V, a.VStride, n), s.queries(a.DO, a.DOStride, n),
		array(a.LSE, each, 4).again(), array(a.Delta, each, 4).again(), s.counters())
}

// keysGrad are dk and dv, of tiles of that many keys, with the scores again and dp.
func keysGrad(tile int32) func(a *attentionGradArgs, e *Event, c *Cost) {
	return func(a *attentionGradArgs, e *Event, c *Cost) {
		s := &a.Sizes
		n := s.sequences(e, s.TK, tile, s.KVHeads)
		c.FLOPs = s.flops(4, n)
		c.writes(s.keys(a.DK, a.DKStride, n), s.keys(a.DV, a.DVStride, n))
		a.reads(c, n)
	}
}

// queriesGrad is dq, with the scores again and dp.
func queriesGrad(tile int32) func(a *attentionGradArgs, e *Event, c *Cost) {
	return func(a *attentionGradArgs, e *Event, c *Cost) {
		s := &a.Sizes
		n := s.sequences(e, s.TQ, tile, s.Heads)
		c.FLOPs = s.flops(3, n)
		c.writes(s.queries(a.DQ, a.DQStride, n))
		a.reads(c, n)
	}
}

func attentionKernels() map[string]costOf {
	all := map[string]costOf{
		"attention_delta": line(Attention, func(a *attentionGradArgs, _ *Event, c *Cost) {
			s := &a.Sizes
			n := a.Queries / int64(s.Heads) / int64(s.TQ)
			o, do := s.queries(a.O, a.OStride, n), s.queries(a.DO, a.DOStride, n)
			o.Use, do.Use = Once, Once
			c.reads(o, do)
			c.writes(array(a.Delta, a.Queries, 4))
		}),
	}
	for _, width := range []string{"64", "128"} {
		all["attention_"+width], all["attention_keys_"+width], all["attention_queries_"+width] = line(Attention, attended(64)), line(Attention, keysGrad(64)), line(Attention, queriesGrad(64))
	}
	for _, width := range []string{"64", "128", "any"} {
		all["attention_mma_"+width], all["attention_keys_mma_"+width], all["attention_queries_mma_"+width] = line(Attention, attended(128)), line(Attention, keysGrad(64)), line(Attention, queriesGrad(128))
	}
	return all
}
