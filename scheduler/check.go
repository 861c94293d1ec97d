package scheduler

// Report is the result of Check.
type Report struct {
	// PeakInFlight is, for each rank, the largest number of its chunks' outputs that it holds for
	// their backwards. Each F adds one; the B releases it, or the W where B is split. A
	// forward-only rank releases each output at once.
	PeakInFlight []int
	// Credits is the largest number of outputs in flight on each edge. An output is in flight from
	// the start of the action that sends it to the start of the action that consumes it.
	Credits Credits
	// Edges lists the edges that Credits counts. The stages use them.
	Edges *Edges
	// OutOfOrder names the passes whose order changes the last bits of gradients.
	OutOfOrder OutOfOrder
}

// Check proves that a table can run. Every action occurs once, on the rank that holds its chunk,
// and after the actions of the same chunk that it depends on. All ranks finish, even when no edge
// holds more outputs than its credits allow.
func Check(t *Table) (*Report, error) {
	r, _, err := Analyse(t)
	return r, err
}

// Analyse runs Check and also returns the timeline at unit costs that proves the table. In that
// timeline an action takes a credit only after it was returned, so it is also a valid run under
// credits.
func Analyse(t *Table) (*Report, *Timeline, error) {
	ix, err := newIndex(t)
	if err != nil {
		return nil, nil, err
	}
	p := newPlayer(t, ix)
	if err := p.play(Machine{Costs: UnitCosts}); err != nil {
		return nil, nil, err
	}
	return &Report{
		PeakInFlight: peakInFlight(t),
		Credits:      p.peakUnderWay(),
		Edges:        ix.edges,
		OutOfOrder:   ix.outOfOrder,
	}, p.timeline, nil
}

func peakInFlight(t *Table) []int {
	peaks := make([]int, t.NumRanks())
	for r, row := range t.Ranks {
		held := 0
		for _, a := range row {
			if a.Part > 1 {
				continue
			}
			switch a.Type {
			case F:
				held++
				peaks[r] = max(peaks[r], held)
				if t.ForwardOnly {
					held--
				}
			case B, W:
				held--
			}
		}
	}
	return peaks
}

// peakUnderWay returns the largest number of outputs in flight on each edge in the last play.
func (p *player) peakUnderWay() Credits {
	chunks, skips := p.table.NumChunks, len(p.table.Skips)
	c := Credits{Forward: make([]int, chunks), Backward: make([]int, chunks)}
	if skips > 0 {
		c.SkipForward, c.SkipBackward = make([]int, skips), make([]int, skips)
	}
	for chunk := range int32(chunks) {
		for _, e := range p.index.edges.Outs(ForwardEdge, chunk) {
			if e.isSkip() {
				c.SkipForward[e.Skip] = p.peakOnEdge(e)
			} else {
				c.Forward[chunk] = p.peakOnEdge(e)
			}
		}
		for _, e := range p.index.edges.Outs(BackwardEdge, chunk) {
			if e.isSkip() {
				c.SkipBackward[e.Skip] = p.peakOnEdge(e)
			} else {
				c.Backward[chunk] = p.peakOnEdge(e)
			}
		}
	}
	return c
}

// peakOnEdge counts the outputs that are sent and not yet consumed. An output that is consumed at
// the moment another is sent still counts: its credit has not returned yet, so the other cannot use
// it.
func (p *player) peakOnEdge(e Edge) int {
	if e.Kind == BackwardEdge && p.table.ForwardOnly {
		return 0
	}
	order := p.index.pass[e.Kind].order
	sent, consumed := p.start[p.rankOf[e.From]], p.start[p.rankOf[e.To]]
	peak, taken := 0, 0
	for k, at := range order[e.From] {
		for consumed[order[e.To][taken]] < sent[at] {
			taken++
		}
		peak = max(peak, k+1-taken)
	}
	return peak
}
