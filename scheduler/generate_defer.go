package scheduler

// deferWeights splits the backwards of the last chunk's last microbatches and moves their weight
// gradients to the end of its rank's order. (Megatron-Core defers the LM head's weight gradients of
// the first microbatches; choosing the last ones keeps the order in which gradients add up.) The
// other ranks then get their last gradients earlier, and the last rank, which finishes first,
// computes during its idle time. Its outputs are held longer.
func (t *Table) deferWeights(microbatches int) {
	last := int32(t.NumChunks - 1)
	rank := t.RankOf(int(last))
	from := int32(t.Microbatches - min(microbatches, t.Microbatches))
	row := make([]Action, 0, len(t.Ranks[rank])+microbatches)
	var weights []Action
	for _, a := range t.Ranks[rank] {
		w := Action{Chunk: last, Type: W, Microbatch: a.Microbatch}
		switch put := a.Chunk == last && a.Microbatch >= from; {
		case put && a.Type == B:
			a.Type = I
			weights = append(weights, w)
		case put && a.Type == W:
			weights = append(weights, w)
			continue
		}
		row = append(row, a)
	}
	t.Ranks[rank] = append(row, weights...)
}
