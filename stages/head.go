package stages

import "github.com/troupe-ml/troupe/tensorops"

// head is the pipeline's last layer: final norm, projection to the vocabulary, and cross-entropy.
// Its only output is the loss.
//
// The logits would be the largest tensor of a training step, and they are never needed as a whole.
// The head computes them for some rows at a time, turns them into the loss and its gradient, uses
// these for the projection's gradients, and overwrites them with the next rows. All of this happens
// in the forward pass: the gradient of a loss is known together with the loss, up to a factor
// (LossScale, which the whole step determines). So the head's backward only computes the gradients
// of its norm.
//
// A microbatch may delay the projection's weight gradient (Microbatch.HeadLater). Then the
// gradients of all its logits are kept, and the weight gradient is computed from them later.
//
// With multi-token prediction, in training, it receives the hidden states of every depth,
// [(1+depths)·B, T, C]. Its targets are the targets of each position and of the following
// positions.
type head struct {
	norm    norm
	proj    linear
	vocab   int     // tokens whose logits this rank computes
	first   int     // first of these tokens
	whole   int     // tokens of the vocabulary
	factor  float64 // of the logits; 0: 1. The norm's output is multiplied, which has fewer numbers
	softCap float64 // limit of the logits; 0: none
	further int     // depths of multi-token prediction
	weight  float64 // weight of each depth's loss
}

type headState struct {
	x, stats tensorops.Tensor // input, norm's statistics
	n        tensorops.Tensor // normalized input, during the forward or until the weight gradient
	logits   tensorops.Tensor // of some rows, later their gradients; with HeadLater of all rows; width columns
	raw      tensorops.Tensor // of some rows, before the soft cap
	dn       tensorops.Tensor // gradient of n
	loss     tensorops.Tensor // [(1+depths)·chunks, 2] float64 on the device
	host     []float64        // copy of loss in host memory
	didNorm  bool             // the norm's weight gradient is recorded
	chunks   int              // of each depth
	later    []int32          // targets of the further depths
	judged   Report           // with a Preference
}

func (*head) symbol() byte    { return SymbolLoss }
func (*head) newState() state { return new(headState) }

func (h *head) linears() []*linear { return []*linear{&h.proj} }

func (h *head) uses() []use { return append(h.norm.uses(), h.proj.uses()...) }

func (s *headState) drop(l *tensorops.List, _ bool) {
	free(l, &s.x, &s.stats, &s.n, &s.logits, &s.raw, &s.dn, &s.loss)
	s.didNorm = false
}

// sum returns the total loss of a depth's chunks of rows and the number of its targets. Depth 0 is
// the model's own loss.
func (s *headState) sum(depth int) (loss, targets float64) {
	each := s.chunks * tensorops.LossStats
	for i := depth * each; i < (depth+1)*each; i += tensorops.LossStats {
		loss += s.host[i]
		targets += s.host[i+1]
	}
	return loss, targets
}

// The number of rows whose logits exist at the same time: as many as fit the limit, in multiples of
// rowsLogits, where devices cut the sums of a weight gradient anyway.
const (
	usualLogits = 16 << 20 // elements
	rowsLogits  = 256
)

func (h *head) rowsAtATime(c *pass, rows int) int {
	limit := c.stage.opts.Logits
	if limit == 0 {
		limit = usualLogits
	}
	size := c.tensor().size()
	n := limit / ((h.whole + size - 1) / size) // the same on all ranks
	if n >= rowsLogits {
		n = n / rowsLogits * rowsLogits
	}
	return min(max(n, rowsLogits/4), rows)
}

func (h *head) forward(c *pass, st state, x tensorops.Tensor) tensorops.Tensor {
	s := st.(*headState)
	s.x = x
	s.n, s.stats = h.norm.forward(c, x)
	c.scale(s.n, h.factor)
	s.n = c.gathered(s.n)
	if c.mb.Train {
		s.dn = c.AllocLike(s.n)
	}
	switch o := &c.stage.opts; {
	case o.Preference != nil:
		h.answers(c, s, o.Preference)
	case c.teaches():
		h.teach(c, s, o.Distill)
	case c.taught():
		h.distilled(c, s, o.Distill)
	default:
		h.tokens(c, s)
	}
	if c.mb.Train {
		s.dn = c.total(s.dn)
		c.scale(s.dn, h.factor)
	}
	if !c.mb.headLater() {
		free(c.List, &s.logits, &s.n)
	}
	return tensorops.Tensor{}
}

// tokens computes the loss of each target and, in training, everything that its gradient needs.
func (h *head) tokens(c *pass, s *headState) {
	rows := c.rows()
	each := h.rowsAtATime(c, rows)
	chunks := (rows + each - 1) / max(each, 1)
	if chunks == 0 {
		chunks, each = 1, 1
	}
	depths := 1
	if c.mb.Train {
		depths += h.further
	}
	s.chunks, s.later = chunks, s.later[:0]
	s.loss = c.Alloc(tensorops.Float64, depths*chunks, tensorops.LossStats)
	s.host = append(s.host[:0], make([]float64, depths*chunks*tensorops.LossStats)...)
	kept := each // rows of logits
	if c.mb.headLater() {
		kept = depths * rows
	}
	s.logits = c.Alloc(c.inner(), kept, h.width(c))
	lse := c.Alloc(tensorops.Float64, each, 1)
	if h.softCap != 0 && c.mb.Train {
		s.raw = c.Alloc(c.inner(), each, h.width(c))
	}
	for depth := range depths {
		targets, scale := c.targets, 1.0
		if depth > 0 {
			targets, scale = h.shifted(c, s, depth), h.weight
		}
		targets = targets.View(rows, 1)
		for i := range chunks {
			first, last := i*each, min((i+1)*each, rows)
			stats := s.loss.RowRange(depth*chunks+i, depth*chunks+i+1)
			h.loss(c, s, stats, s.rowsOf(c, depth*rows+first, last-first), lse.RowRange(0, last-first), targets.RowRange(first, last), scale,
				depth*rows+first)
		}
		if depth > 0 {
			c.Free(targets)
		}
	}
	free(c.List, &lse, &s.raw)
	if g := c.stage.opts.Context; g.size() > 1 { // each rank has the loss of its positions
		c.AllReduce(s.loss, tensorops.Sum, g.Group)
	}
	c.Fetch(tensorops.HostBytes(s.host), s.loss)
}

// rowsOf returns the memory of the logits of some rows.
func (s *headState) rowsOf(c *pass, first, n int) tensorops.Tensor {
	if c.mb.headLater() {
		return s.logits.RowRange(first, first+n)
	}
	return s.logits.RowRange(0, n)
}

// shifted returns the targets n places ahead. Positions within n places of the end of their sequence, or of
// their document, have none.
func (h *head) shifted(c *pass, s *headState, by int) tensorops.Tensor {
	from := len(s.later)
	s.later = shift(s.later, c.mb.Targets, c.mb.Starts, c.mb.Positions, by, tensorops.IgnoreTarget)
	return c.ids(s.later[from:])
}

// loss computes the loss of the rows starting at first and, in training, everything that its
// gradient needs.
func (h *head) loss(c *pass, s *headState, stats, logits, lse, targets tensorops.Tensor, scale float64, first int) {
	n := s.n.Matrix().RowRange(first, first+logits.Rows())
	c.firstRow = first % max(c.rows(), 1)
	raw := h.logits(c, s, logits, n)
	own := logits.Columns(0, h.vocab) // without the columns for the padding rows
	var o tensorops.CrossEntropyOpts
	if c.mb.Train {
		o = tensorops.CrossEntropyOpts{Grad: own, Scale: scale}
	}
	h.crossEntropy(c, stats, lse, own, targets, o)
	if c.mb.Train {
		h.gradients(c, s, logits, raw, first)
	}
	c.firstRow = 0
}

// gradients computes what the gradients of the logits of the rows starting at first give: that of the head's input and, unless it
// is delayed, that of the projection. raw are the logits without the soft cap.
func (h *head) gradients(c *pass, s *headState, logits, raw tensorops.Tensor, first int) {
	last := first + logits.Rows()
	c.firstRow = first % max(c.rows(), 1)
	defer func() { c.firstRow = 0 }()
	if raw.Valid() {
		c.SoftCapGrad(logits, logits, raw.RowRange(0, logits.Rows()), h.softCap)
	}
	h.proj.inputGrad(c, s.dn.Matrix().RowRange(first, last), logits, false)
	if !c.mb.headLater() {
		h.weightGradOf(c, s.n.Matrix().RowRange(first, last), logits)
	}
}

// logits records the logits of rows and, in training, returns them without the soft cap if there is
// one.
func (h *head) logits(c *pass, s *headState, to, n tensorops.Tensor) (raw tensorops.Tensor) {
	if h.softCap == 0 {
		h.proj.forward(c, to, n)
		return raw
	}
	from := to
	if s.raw.Valid() {
		from = s.raw.RowRange(0, to.Rows())
		raw = from
	}
	h.proj.forward(c, from, n)
	c.SoftCap(to, from, h.softCap)
	return raw
}

// weightGradOf adds the projection's weight gradient for some rows of logits' gradients.
func (h *head) weightGradOf(c *pass, n, logits tensorops.Tensor) {
	if !c.stage.byParam[h.proj.w.param.Index].gradPadded.Valid() {
		logits = logits.Columns(0, h.vocab)
	}
	h.proj.weightGrad(c, n, logits)
}

// crossEntropy computes the loss over the whole vocabulary, wherever its logits are.
func (h *head) crossEntropy(c *pass, stats, lse, logits, targets tensorops.Tensor, o tensorops.CrossEntropyOpts) {
	g, size, rows := c.tensor().Group, c.tensor().size(), targets.Rows()
	if size <= 1 {
		c.CrossEntropy(stats, lse, logits, targets, o)
		return
	}
	here := tensorops.VocabSlice{First: h.first, Vocab: h.whole}
	parts := c.Alloc(tensorops.Float64, rows, tensorops.LossParts)
	all := c.Alloc(tensorops.Float64, size*rows, tensorops.LossParts)
	c.CrossEntropyPart(parts, logits, targets, here)
	c.AllGather(all, parts, 0, g)
	c.CrossEntropyJoin(stats, lse, all, targets, logits, here, o)
	free(c.List, &parts, &all)
}

func (h *head) inputGrad(c *pass, st state, _ tensorops.Tensor) tensorops.Tensor {
	s := st.(*headState)
	dx := c.AllocLike(s.x)
	s.didNorm = h.norm.grads(c, dx, s.dn, s.x, s.stats, tensorops.Tensor{})
	return dx
}

func (h *head) weightGrad(c *pass, st state) {
	s := st.(*headState)
	if c.mb.headLater() {
		// The same number of rows at a time as in the forward.
		rows := c.rows()
		each := h.rowsAtATime(c, rows)
		for at := 0; at < s.logits.Rows(); at += rows {
			for first := at; first < at+rows; first += each {
				last := min(first+each, at+rows)
				c.firstRow = first - at
				h.weightGradOf(c, s.n.Matrix().RowRange(first, last), s.logits.RowRange(first, last))
			}
		}
	}
	c.firstRow = 0
	if !s.didNorm {
		h.norm.weightGrad(c, s.dn, s.x, s.stats)
	}
	s.drop(c.List, true)
}
