package scheduler

// playInLoop does what play does, event by event.
func (p *player) playInLoop() error {
	rows := inRow{player: p}
	for kind := range rows.inputs {
		rows.inputs[kind] = make([]bool, p.table.NumChunks*p.table.Microbatches)
	}
	l := newLoop(p.Machine, p.table, p.index.edges, rows)
	if err := l.run(); err != nil {
		return err
	}
	for r, row := range p.table.Ranks {
		if p.next[r] < len(row) {
			return p.deadlock(r)
		}
	}
	p.timeline = l.timeline
	p.timeline.Summarise()
	return nil
}

// inRow is the policy of a table: a rank takes the next action or pair of its row.
type inRow struct {
	*player
	inputs [2][]bool // by EdgeKind, and chunk and microbatch: all inputs of the action have arrived
}

func (p inRow) next(rank int, can func(Action) bool) []Action {
	row, i := p.table.Ranks[rank], p.player.next[rank]
	if i == len(row) {
		return nil
	}
	actions := row[i : i+Width(row, i)]
	for _, a := range actions {
		if kind, ok := a.edge(); ok {
			_, needs := kind.from(int(a.Chunk), p.table.NumChunks)
			if needs && !p.inputs[kind][p.visit(a)] || !can(a) {
				return nil
			}
		}
	}
	return actions
}

func (p inRow) visit(a Action) int { return int(a.Chunk)*p.table.Microbatches + int(a.Microbatch) }

func (p inRow) begin(rank int, a Action) {
	p.player.next[rank]++
	p.deliver(a)
}

func (p inRow) arrived(_ int, a Action) {
	kind, _ := a.edge()
	p.inputs[kind][p.visit(a)] = true
}

func (p inRow) end(int, Action) {}
