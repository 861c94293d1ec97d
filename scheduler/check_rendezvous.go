package scheduler

// RendezvousSafe reports whether a table could also be run without any buffer, where a
// send waits until its receiver takes it: each rank receives an action's input, computes,
// and sends its output, one after the other. Runs don't need it, since a mailbox takes
// what comes; systems of matched sends and receives do, and pair them for want of it. The
// table is one that Check passes.
//
// It plays the transfers alone, each of which waits until the rank at its other end has
// come to it.
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
		// Something that waits for nothing is in front of the first transfer.
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
				if kind, ok := a.Type.edge(); ok {
					for _, e := range edges.Ins(kind, a.Chunk) {
						add(e, e.From, a, receiveOn(kind), ix.receives[kind])
					}
				}
			}
			for _, a := range together {
				if kind, ok := a.Type.edge(); ok {
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

// transferChunk is the chunk of a transfer: the action's for a neighbour's, and for a skip's
// a number behind those of the chunks, the same at both ends.
func transferChunk(t *Table, e Edge, chunk int32) int32 {
	if e.isSkip() {
		return int32(t.NumChunks) + e.Skip
	}
	return chunk
}
