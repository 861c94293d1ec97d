package actors

import "sync"

// Source is the data that the loader reads. Its methods are pure functions of
// their arguments, so that a resumed run reads the same.
type Source interface {
	// Train fills one sequence of a step: tokens and their targets.
	Train(step int64, index int, tokens, targets []int32) error
	// Eval describes validation window index, of EvalWindows, by its length, and
	// EvalFill fills it.
	EvalWindows() int
	EvalLen(index int) int
	EvalFill(index int, tokens, targets []int32) error
}

// Extent says which of a step's or a validation's sequences a microbatch has, and their
// length.
type Extent struct{ FirstSequence, Sequences, Positions int }

// Batch are the tokens and targets of one microbatch, in host memory that goes
// back to the loader's pool.
type Batch struct {
	Extent
	Tokens, Targets []int32 // empty where not asked for
	pool            *batchPool
}

// Release gives the memory back.
func (b *Batch) Release() {
	if b.pool != nil {
		b.pool.put(b)
	}
}

// batchPool keeps batches for reuse. It holds no more than were in flight at
// once, which LimitDataAhead bounds for each chunk.
type batchPool struct {
	mu   sync.Mutex
	free []*Batch
}

func (p *batchPool) get(n int) *Batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := &Batch{pool: p}
	if k := len(p.free) - 1; k >= 0 {
		b = p.free[k]
		p.free = p.free[:k]
	}
	if cap(b.Tokens) < n {
		b.Tokens, b.Targets = make([]int32, n), make([]int32, n)
	}
	b.Tokens, b.Targets = b.Tokens[:n], b.Targets[:n]
	return b
}

func (p *batchPool) put(b *Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}
