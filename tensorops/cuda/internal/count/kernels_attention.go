package count

// Arguments of attention.cuh.
type (
	attentionSizes struct {
		Mask                          mask
		Starts, Oldest, Ends          uint64
		TQ, TK, Heads, KVHeads, Width int32
		Scale                         float32
		Dropped                       int32
		Quads                         int32
		Window                        int32
		Reach                         int32
		MaskQueries, MaskKeys         int32
		Cap, Inside                   float32
		Offset, Pad                   int32
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
	// Of attention_starts.cu.
	attentionStartsArgs struct {
		Oldest, Ends, Starts                  uint64
		TQ, TK, Window, Offset, Queries, Keys int32
	}
	// Of attend_mma.cuh and attention_grad_mma.cuh.
	attentionMMAArgs struct {
		O, LSE, Q, K, V                    uint64
		OStride, QStride, KStride, VStride int64
		Sizes                              attentionSizes
		Step                               int32
		Halves                             uint32
	}
	attentionGradMMAArgs struct {
		DQ, DK, DV, DO, O, HalfDO, Q, K, V, LSE, Delta, Sums, Turns uint64
		DQStride, DKStride, DVStride, DOStride, OStride             int64
		HalfDOStride, QStride, KStride, VStride                     int64
		Queries, Counters                                           int64
		Sizes                                                       attentionSizes
		Step                                                        int32
		Halves                                                      uint32
	}
	// Of sink.cu.
	sinkArgs struct {
		O, LSE, Sinks         uint64
		Count                 int64
		Queries, Heads, Width int32
		Halves                uint32
	}
	sinkGradArgs struct {
		DSinks, DO, O, LSE, Sinks uint64
		Rows                      int64
		Queries, Heads, Width     int32
		Halves                    uint32
	}
	// Of attention_onto.cu.
	ontoArgs struct {
		O, LSE, PartO, PartLSE uint64
		Count                  int64
		Queries, Heads, Width  int32
		Halves                 uint32
	}
)

// queries is a matrix with a row for each query and all heads, and keys one with a row for each key.
func (s *attentionSizes) queries(at uint64, stride, sequences int64) Operand {
	all := matrix(at, sequences*int64(s.TQ), int64(s.Heads)*int64(s.Width), stride, 4)
	if s.blind() {
		return all.some()
	}
	return all.again()
}

// blind reports whether queries may see no key: they come after all keys, and a window hides some.
func (s *attentionSizes) blind() bool { return s.Window != 0 && s.Offset >= s.TK }

// keys are all, except those that no window reaches, or that come before all documents.
func (s *attentionSizes) keys(at uint64, stride, sequences int64) Operand {
	all := matrix(at, sequences*int64(s.TK), int64(s.KVHeads)*int64(s.Width), stride, 4)
	if s.Window != 0 || s.Starts != 0 {
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

// documents are where the documents of queries start, and what follows for tiles of queries and keys.
func (s *attentionSizes) documents(sequences int64, queries, keys int32) []Operand {
	tiles := func(at uint64, n, tile int32) Operand { return array(at, sequences*int64((n+tile-1)/tile), 4).some() }
	return []Operand{array(s.Starts, sequences*int64(s.TQ), 4).some(), tiles(s.Oldest, s.TQ, queries), tiles(s.Ends, s.TK, keys)}
}

// pairs are how many queries and keys of a sequence and head see each other, if all are of one document.
func (s *attentionSizes) pairs() (n float64) {
	for i := range int(s.TQ) {
		end := min(i+1+int(s.Offset), int(s.TK))
		n += float64(max(end-max(i+1+int(s.Offset-s.Reach), 0), 0))
	}
	return n
}

// sequences are as many as a grid has tiles of rows for.
func (s *attentionSizes) sequences(e *Event, rows, tile, heads int32) int64 {
	return int64(e.Grid[0]) / int64((rows+tile-1)/tile) / int64(heads)
}

// of is how many sequences have so many queries in all heads.
func (s *attentionSizes) of(queries int64) int64 {
	if s.TQ == 0 {
		return 0
	}
	return queries / int64(s.Heads) / int64(s.TQ)
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
		c.reads(s.documents(n, tile, tile)...)
	}
}

// reads are what both kernels of the gradient read.
func (a *attentionGradArgs) reads(c *Cost, n int64) {
	s := &a.Sizes
	each := n * int64(s.Heads) * int64(s.TQ)
	lse, delta := array(a.LSE, each, 4).again(), array(a.Delta, each, 4).again()
	if s.blind() {
		lse, delta = lse.some(), delta.some()
	}
	c.reads(s.queries(a.Q, a.QStride, n), s.keys(a.K, a.KStride, n), s.keys(a.V, a.VStride, n), s.queries(a.DO, a.DOStride, n),
		lse, delta, s.counters())
	c.reads(s.documents(n, 64, 64)...)
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
			n := s.of(a.Queries)
			o, do := s.queries(a.O, a.OStride, n), s.queries(a.DO, a.DOStride, n)
			o.Use, do.Use = Once, Once
			c.reads(o, do)
			c.writes(array(a.Delta, a.Queries, 4))
		}),
	}
	for _, width := range []string{"64", "128", "64_capped", "128_capped", "64_starts", "128_starts", "64_capped_starts",
		"128_capped_starts"} {
		all["attention_"+width], all["attention_keys_"+width], all["attention_queries_"+width] = line(Attention, attended(64)),
			line(Attention, keysGrad(64)), line(Attention, queriesGrad(64))
	}
	for _, t := range []struct {
		channels      string
		queries, keys int32 // of a tile
		gradQueries   int32 // of the gradient's
		inTile        int64 // elements of dq that a block adds at a time
	}{{"64", 64, 128, 64, 64 * 64}, {"128", 64, 64, 32, 32 * 128}} {
		for _, form := range []string{"", "_dropped", "_capped", "_starts", "_dropped_starts", "_capped_starts"} {
			all["attention_mma_"+t.channels+form] = line(Attention, attendedMMA(t.queries))
			all["attention_grad_mma_"+t.channels+form] = line(Attention, gradMMA(t.keys, t.gradQueries, t.inTile))
		}
	}
	all["attention_starts"] = line(Attention, func(a *attentionStartsArgs, e *Event, c *Cost) {
		n := int64(e.Grid[0])
		oldest, ends := array(a.Oldest, n*int64((a.TQ+a.Queries-1)/a.Queries), 4), array(a.Ends, n*int64((a.TK+a.Keys-1)/a.Keys), 4)
		c.writes(oldest.again(), ends)
		c.reads(array(a.Starts, n*int64(a.TQ), 4), oldest.again())
	})
	all["attention_delta_mma"] = line(Attention, deltaMMA)
	all["attention_sink"] = line(Attention, func(a *sinkArgs, _ *Event, c *Cost) {
		elements := a.Count * int64(a.Width)
		c.writes(either(a.O, elements, a.Halves, 0), array(a.LSE, a.Count, 4))
		c.reads(either(a.O, elements, a.Halves, 0), array(a.LSE, a.Count, 4), array(a.Sinks, int64(a.Heads), 4).again())
	})
	all["attention_sink_grad"] = line(Attention, func(a *sinkGradArgs, _ *Event, c *Cost) {
		heads := int64(a.Heads)
		elements := a.Rows * heads * int64(a.Width)
		c.writes(array(a.DSinks, heads, 4))
		c.reads(array(a.DSinks, heads, 4), either(a.DO, elements, a.Halves, 0), either(a.O, elements, a.Halves, 1),
			array(a.LSE, a.Rows*heads, 4).again(), array(a.Sinks, heads, 4).again())
	})
	all["attention_onto"] = line(Attention, func(a *ontoArgs, _ *Event, c *Cost) {
		elements := a.Count * int64(a.Width)
		o, lse := either(a.O, elements, a.Halves, 0).some(), array(a.LSE, a.Count, 4) // a query that sees no key keeps its own
		c.writes(o, lse.some())
		c.reads(o, lse, array(a.PartO, elements, 4).some(), array(a.PartLSE, a.Count, 4).again())
	})
	return all
}

// halfHeads is a matrix of heads in bfloat16 that begin step elements apart.
func halfHeads(at uint64, rows int64, heads, width, step int32, stride int64) Operand {
	all := matrix(at, rows, int64(heads)*int64(step), stride, 2)
	if step != width { // nothing is read between them
		return all.some()
	}
	return all.again()
}

func (s *attentionSizes) halfQueries(at uint64, stride, sequences int64, step int32) Operand {
	return halfHeads(at, sequences*int64(s.TQ), s.Heads, s.Width, step, stride)
}

func (s *attentionSizes) halfKeys(at uint64, stride, sequences int64, step int32) Operand {
	all := halfHeads(at, sequences*int64(s.TK), s.KVHeads, s.Width, step, stride)
	if s.Window != 0 || s.Starts != 0 {
		return all.some()
	}
	return all
}

// ofSize is a matrix of queries or keys in another type than float32.
func ofSize(o Operand, size int64) Operand {
	o.RowBytes, o.Stride = o.RowBytes/4*size, o.Stride/4*size
	return o
}

func attendedMMA(tile int32) func(a *attentionMMAArgs, e *Event, c *Cost) {
	return func(a *attentionMMAArgs, e *Event, c *Cost) {
		s := &a.Sizes
		n := s.sequences(e, s.TQ, tile, s.Heads)
		c.FLOPs = s.flops(2, n)
		c.writes(ofSize(s.queries(a.O, a.OStride, n), sizeOf(a.Halves, 0)), array(a.LSE, n*int64(s.Heads)*int64(s.TQ), 4))
		c.reads(s.halfQueries(a.Q, a.QStride, n, a.Step), s.halfKeys(a.K, a.KStride, n, a.Step), s.halfKeys(a.V, a.VStride, n, a.Step),
			s.counters())
		keys := int32(64) // of a tile
		if s.Dropped != 0 {
			keys = 32
		}
		c.reads(s.documents(n, tile, keys)...)
	}
}

// gradMMA is the whole gradient, of tiles of that many keys, and of so many elements of dq. Sums of dq are added to
// in turns: they are read from
// the cache, where few of them are at a time, and written to memory once.
func gradMMA(tile, queries int32, inTile int64) func(a *attentionGradMMAArgs, e *Event, c *Cost) {
	return func(a *attentionGradMMAArgs, e *Event, c *Cost) {
		s := &a.Sizes
		n := s.sequences(e, s.TK, tile, s.KVHeads)
		each := n * int64(s.Heads) * int64(s.TQ)
		c.FLOPs = s.flops(5, n)
		keys := func(at uint64, stride int64, bit int) Operand {
			o := ofSize(s.keys(at, stride, n), sizeOf(a.Halves, bit))
			o.Use = Again
			return o
		}
		sums, turns := array(a.Sums, (a.Counters-1)*inTile, 4).some(), array(a.Turns, a.Counters, 4).some()
		turns.Use = Cached
		c.writes(ofSize(s.queries(a.DQ, a.DQStride, n), sizeOf(a.Halves, 0)), keys(a.DK, a.DKStride, 1), keys(a.DV, a.DVStride, 2), sums, turns)
		sums.Use = Cached
		c.reads(s.halfQueries(a.Q, a.QStride, n, a.Step), s.halfQueries(a.HalfDO, a.HalfDOStride, n, a.Step),
			s.halfKeys(a.K, a.KStride, n, a.Step),
			s.halfKeys(a.V, a.VStride, n, a.Step), array(a.LSE, each, 4).again(), array(a.Delta, each, 4).again(), s.counters(), sums, turns)
		c.reads(s.documents(n, queries, tile)...)
	}
}

func deltaMMA(a *attentionGradMMAArgs, _ *Event, c *Cost) {
	s := &a.Sizes
	n := s.of(a.Queries)
	o, do := ofSize(s.queries(a.O, a.OStride, n), sizeOf(a.Halves, 4)), ofSize(s.queries(a.DO, a.DOStride, n), sizeOf(a.Halves, 3))
	o.Use, do.Use = Once, Once
	c.reads(o, do)
	c.writes(array(a.Delta, a.Queries, 4), array(a.Turns, a.Counters, 4))
}
