package scheduler

// rows collects orders and counts the microbatches of each chunk and type, so that a generator
// names only the next action.
type rows struct {
	spec Spec
	next map[counter]int32
	row  []Action
}

type counter struct {
	chunk int
	typ   Type
}

// add appends the next action of a type on a chunk. It drops actions beyond the last microbatch: a
// pattern that needs more microbatches loses its tail.
func (r *rows) add(chunk int, t Type) {
	c := counter{chunk, t}
	if t == B { // it is an I and a W
		r.next[counter{chunk, W}]++
		c.typ = I
	}
	m := r.next[c]
	r.next[c]++
	if int(m) < r.spec.Microbatches {
		r.row = append(r.row, Action{Chunk: int32(chunk), Type: t, Microbatch: m})
	}
}

// weights appends W after each I that has none yet, chunk by chunk in the given order.
func (r *rows) weights(chunks ...int) {
	for _, s := range chunks {
		for r.next[counter{s, W}] < r.next[counter{s, I}] {
			r.add(s, W)
		}
	}
}

func newRows(s Spec) *rows { return &rows{spec: s, next: make(map[counter]int32)} }
