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
	transfers := *t
	transfers.Ranks = make([][]Action, t.NumRanks())
	ix := &index{}
	for _, kind := range []EdgeKind{ForwardEdge, BackwardEdge} {
		ix.sends[kind] = matrix(t.NumChunks, t.Microbatches)
		ix.receives[kind] = matrix(t.NumChunks, t.Microbatches)
	}
	for rank, row := range t.Ranks {
		// Something that waits for nothing is in front of the first transfer.
		out := []Action{{Chunk: row[0].Chunk, Type: unshard}}
		for i := 0; i < len(row); i += Width(row, i) {
			together := row[i : i+Width(row, i)]
			for _, a := range together {
				if kind, ok := a.Type.edge(); ok {
					if from, ok := kind.from(int(a.Chunk), t.NumChunks); ok && t.RankOf(from) != rank {
						out = append(out, Action{Chunk: a.Chunk, Type: receiveOn(kind), Microbatch: a.Microbatch})
						ix.receives[kind][a.Chunk][a.Microbatch] = int32(len(out))
					}
				}
			}
			for _, a := range together {
				if kind, ok := a.Type.edge(); ok {
					if to, ok := kind.to(int(a.Chunk), t.NumChunks); ok && t.RankOf(to) != rank {
						out = append(out, Action{Chunk: a.Chunk, Type: sendOn(kind), Microbatch: a.Microbatch})
						ix.sends[kind][a.Chunk][a.Microbatch] = int32(len(out))
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
