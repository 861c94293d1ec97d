package scheduler

// RendezvousSafe reports whether a table could also run without any buffer, where a send blocks
// until its receiver takes it. Each rank receives an action's input, computes, and sends its
// output, one after the other. Troupe's runs don't need this property, since a mailbox takes
// messages in any order. Systems that match each send with a receive do need it; where it does not
// hold they issue sends and receives in pairs. The table must be one that Check accepts.
//
// The function simulates the transfers alone. Each waits until the rank at its other end has
// reached it.
func RendezvousSafe(t *Table) bool {
	edges, err := t.Edges()
	if err != nil {
		return false
	}
	transfers := *t
	transfers.Ranks = make([][]Action, t.NumRanks())
	ix := &index{edges: edges}
	for _, kind := range []EdgeKind{ForwardEdge, BackwardEdge} {
		ix.sends[kind] = matrix(t.NumChunks+len(t.Skips), t.Microbatches)
		ix.receives[kind] = matrix(t.NumChunks+len(t.Skips), t.Microbatches)
	}
	for rank, row := range t.Ranks {
		// An action without dependencies stands before the first transfer.
		out := []Action{{Chunk: row[0].Chunk, Type: unshard}}
		add := func(e Edge, other int32, a Action, transfer Type, positions [][]int32) {
			if t.RankOf(int(other)) == rank {
				return
			}
			out = append(out, Action{Chunk: transferChunk(t, e, a.Chunk), Type: transfer, Microbatch: a.Microbatch})
			positions[out[len(out)-1].Chunk][a.Microbatch] = int32(len(out))
		}
		for i := 0; i < len(row); i += Width(row, i) {
			together := row[i : i+Width(row, i)]
			for _, a := range together {
				if kind, ok := a.edge(); ok {
					for _, e := range edges.Ins(kind, a.Chunk) {
						add(e, e.From, a, receiveOn(kind), ix.receives[kind])
					}
				}
			}
			for _, a := range together {
				if kind, ok := a.edge(); ok {
					for _, e := range edges.Outs(kind, a.Chunk) {
						add(e, e.To, a, sendOn(kind), ix.sends[kind])
					}
				}
			}
		}
		transfers.Ranks[rank] = out
	}
	p := newPlayer(&transfers, ix)
	p.meet = true
	return p.play(Machine{Costs: UnitCosts}) == nil
}

// transferChunk returns the chunk number of a transfer. For a neighbor's transfer it is the
// action's chunk. For a skip it is a number after those of the chunks, the same at both ends.
func transferChunk(t *Table, e Edge, chunk int32) int32 {
	if e.isSkip() {
		return int32(t.NumChunks) + e.Skip
	}
	return chunk
}
