package scheduler

// zbv is the zero-bubble V schedule (arXiv 2405.15362; as a loop of actions in PyTorch's
// ZBVZeroBubble): each rank holds the chunk of its own number and the mirror image of that chunk.
// It has no bubble if F, I and W take the same time and there are at least 2·ranks − 1
// microbatches. With fewer, the table is that of a longer step without its last microbatches.
func (s Spec) zbv(rank int) []Action {
	p, down, up := s.Ranks, rank, 2*s.Ranks-1-rank
	m := max(2*p-1, s.Microbatches)
	r := newRows(s)
	forwards, backwards := 0, 0 // of the lower chunk
	// The pipeline fills: first the lower chunk alone, then both, then the upper chunk has
	// gradients.
	for range 2*(p-rank) - 1 {
		r.add(down, F)
		forwards++
	}
	for range rank {
		r.add(up, F)
		r.add(down, F)
		forwards++
	}
	uppers := rank
	for range p - rank {
		r.add(up, F)
		r.add(up, I)
		r.add(up, W)
		uppers++
	}
	for uppers < forwards || forwards < m {
		if forwards < m {
			r.add(down, F)
			forwards++
		}
		r.add(down, I)
		r.add(down, W)
		backwards++
		r.add(up, F)
		r.add(up, I)
		r.add(up, W)
		uppers++
	}
	// The pipeline drains: gradients that other ranks wait for come first.
	for range rank {
		r.add(down, I)
		r.add(up, I)
	}
	for range p - rank {
		r.add(down, I)
		r.add(down, W)
	}
	r.weights(up, down)
	return r.row
}

// dualPipeV is DualPipe folded into a V (DeepSeek's DualPipe; as a loop of actions in PyTorch's
// DualPipeV). In the steady state a forward and a backward run as one.
func (s Spec) dualPipeV(rank int) []Action {
	p, down, up := s.Ranks, rank, 2*s.Ranks-1-rank
	rest := p - rank - 1
	r := newRows(s)
	pair := func(forward, backward int) {
		r.add(forward, F)
		r.row[len(r.row)-1].Overlap = true
		r.add(backward, B)
	}
	queue := []int{} // chunks whose W is delayed
	input := func(chunk int) {
		r.add(chunk, I)
		queue = append(queue, chunk)
	}
	weight := func() {
		if len(queue) > 0 {
			r.add(queue[0], W)
			queue = queue[1:]
		}
	}
	for range 2 * rest {
		r.add(down, F)
	}
	for range rank + 1 {
		r.add(down, F)
		r.add(up, F)
	}
	for range rest {
		input(up)
		weight()
		r.add(up, F)
	}
	for i := range s.Microbatches - 2*p + rank + 1 {
		if i == 0 && rank == p-1 { // nothing else is in flight, and separate actions end earlier
			r.add(down, F)
			r.add(up, B)
		} else {
			pair(down, up)
		}
		pair(up, down)
	}
	for range rest {
		r.add(up, B)
		pair(up, down)
	}
	// In the second half of the remaining actions, weight gradients are delayed.
	half, off := (rank+1)/2, false
	backward := func(chunk int) {
		if off {
			input(chunk)
		} else {
			r.add(chunk, B)
		}
	}
	for i := range rank + 1 {
		off = off || i == half && rank%2 == 1
		backward(up)
		off = off || i == half && rank%2 == 0
		backward(down)
	}
	for range rest {
		weight()
		input(down)
	}
	for len(queue) > 0 {
		weight()
	}
	return r.row
}
