package scheduler

// rows collects orders, counting the microbatches of each stage and type, so that
// a generator says only what comes next.
type rows struct {
	spec Spec
	next map[counter]int32
	row  []Action
}

type counter struct {
	stage int
	typ   Type
}

// add appends the next action of a type on a stage. What is beyond the last
// microbatch is left out: a pattern that needs more of them loses its tail.
func (r *rows) add(stage int, t Type) {
	c := counter{stage, t}
	if t == B { // it is an I and a W
		r.next[counter{stage, W}]++
		c.typ = I
	}
	m := r.next[c]
	r.next[c]++
	if int(m) < r.spec.Microbatches {
		r.row = append(r.row, Action{Stage: int32(stage), Type: t, Microbatch: m})
	}
}

// weights appends W after each I that has none yet, stage by stage in the order of
// stages.
func (r *rows) weights(stages ...int) {
	for _, s := range stages {
		for r.next[counter{s, W}] < r.next[counter{s, I}] {
			r.add(s, W)
		}
	}
}

func newRows(s Spec) *rows { return &rows{spec: s, next: make(map[counter]int32)} }
