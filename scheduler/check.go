package scheduler

// Report is what Check found out about a table.
type Report struct {
	// PeakInFlight is, by rank, the most outputs of its chunks that it holds for
	// their backwards: one more with each F, one less after the B, or after the
	// W where B is split. A forward-only rank lets go of each at once.
	PeakInFlight []int
	// Credits is how many outputs may be under way on each edge, from the start
	// of the action that sends one to the start of the action that consumes it.
	Credits Credits
	// Edges are those that the credits are of, which stages go by.
	Edges *Edges
	// OutOfOrder names the passes whose order changes the last bits of gradients.
	OutOfOrder OutOfOrder
}

// Check proves that a table can be run: each action stands once, on the rank
// that holds its chunk, after the actions of its own chunk that it needs; and
// all ranks get to their end, also when no edge holds more than its credits.
func Check(t *Table) (*Report, error) {
	r, _, err := Analyse(t)
	return r, err
}

// Analyse is Check, and the timeline at unit costs that proves it: on every edge that
// play takes a credit only after it came back, so it is a play under credits, too.
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

// peakUnderWay returns the most outputs that were under way on each edge in the
// last play.
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

// peakOnEdge counts the outputs that are sent and not yet consumed. One that is
// consumed in the instant another is sent still counts: its credit has yet to
// travel back, so it can't serve the other.
func (p *player) peakOnEdge(e Edge) int {
	if e.Kind == BackwardEdge && p.table.ForwardOnly {
		return 0
	}
	order := p.index.pass[e.Kind].order
	sent, consumed := p.timeline.Start[p.rankOf[e.From]], p.timeline.Start[p.rankOf[e.To]]
	peak, taken := 0, 0
	for k, at := range order[e.From] {
		for consumed[order[e.To][taken]] < sent[at] {
			taken++
		}
		peak = max(peak, k+1-taken)
	}
	return peak
}
