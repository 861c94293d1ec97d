package stages

import "github.com/troupe-ml/troupe/tensorops"

// The rules by which Muon's rate follows from a matrix's size.
const (
	MatchRMSAdamW = "match_rms_adamw" // the rate of AdamW
	OriginalScale = "original"
)

// Matrices describes the hidden matrices in a parameter, which Muon makes orthogonal: one, or those of query, key and value, or of
// query and gate, in one parameter.
type Matrices struct {
	Out, In int  // the size of each
	InOut   bool // each is stored as [In, Out]
	// Blocks says how several lie in the parameter: see tensorops.MuonOpts.
	Blocks int
}

// markHidden notes the hidden matrices: the weights of all linear layers except the head, without those of adapters.
func (m *Model) markHidden() {
	for _, l := range m.layers {
		if l.symbol() == SymbolLoss {
			continue
		}
		for _, lin := range l.linears() {
			p := lin.w.param
			h := &Matrices{Out: p.Whole[0], In: p.Whole[1], InOut: lin.inOut, Blocks: 1}
			if lin.inOut {
				h.Out, h.In = h.In, h.Out
			}
			p.Hidden = h
		}
		if b := blockOf(l); b != nil {
			if mix, ok := b.mixer.(*attentionMixer); ok {
				mix.markParts()
			}
			if x, ok := b.ffn.(*expertFFN); ok {
				x.markHidden()
			}
		}
	}
}

// blockOf returns the decoder layer that a layer is or has; nil: none.
func blockOf(l layer) *block {
	switch l := l.(type) {
	case *block:
		return l
	case *mtp:
		return l.block
	}
	return nil
}

// markParts splits the matrices of a projection to query, key and value, and of one to query and gate.
func (b *attentionMixer) markParts() {
	h := b.qkv[0].w.param.Hidden
	switch {
	case b.spec.shares:
	case len(b.qkv) == 1:
		if h.Out /= 3; h.InOut {
			h.Blocks = h.In // each row has a part of all three
		}
	case b.spec.outputGate: // each head has rows of both
		h.Out, h.Blocks = h.Out/2, b.heads
	}
}

// byMuon reports whether Muon updates a parameter with these settings. AdamW updates the others.
func (o Optimizer) byMuon(p *Param) bool { return o.Name == Muon && p.Hidden != nil && !p.Adapter }

// MuonLen returns the number of elements that Muon updates.
func (o Optimizer) MuonLen(m *Model) (n int64) {
	for _, p := range m.Params {
		if own, _ := o.of(p); !p.Frozen && own.byMuon(p) {
			n += int64(p.Len())
		}
	}
	return n
}

// muon records Muon's update of a parameter that is whole on this rank.
func (s *Stage) muon(l *tensorops.List, u Update, h *localParam, w, m, g, low tensorops.Tensor, clear bool) {
	o := s.muonOpts(u, h)
	o.ClearGrad, o.Copy = clear, low
	l.Muon(w, m, g, o)
}

// muonOpts returns the numbers of a parameter's update.
func (s *Stage) muonOpts(u Update, h *localParam) tensorops.MuonOpts {
	o, p := h.own, h.param.Hidden
	a := tensorops.MuonOpts{LR: u.LR * h.lrScale, Momentum: o.Momentum, WeightDecay: o.WeightDecay, GradScale: u.GradScale, Rows: p.Out,
		Cols: p.In, Blocks: p.Blocks, BF16: s.opts.BF16, Factor: tensorops.MuonMatchRMS(p.Out, p.In)}
	if p.InOut {
		a.Rows, a.Cols = p.In, p.Out
	}
	if o.MuonScale == OriginalScale {
		a.Factor = tensorops.MuonOriginal(p.Out, p.In)
	}
	return a
}
