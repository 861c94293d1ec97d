package plan

import "sync"

// memo has numbers of a plan whose computation makes every stage once. A coordinator asks for them whenever it looks for a worker in the
// place of a lost one.
type memo struct{ own, shadows byRank }

func (m *memo) ownBytes(p *Plan) ([]int64, error) {
	if m == nil {
		return p.ownBytes()
	}
	return m.own.get(p.ownBytes)
}

func (m *memo) shadowBytes(p *Plan) ([]int64, error) {
	if m == nil {
		return p.shadowBytes()
	}
	return m.shadows.get(p.shadowBytes)
}

// byRank has a number for each rank.
type byRank struct {
	once  sync.Once
	bytes []int64
	err   error
}

func (b *byRank) get(compute func() ([]int64, error)) ([]int64, error) {
	b.once.Do(func() { b.bytes, b.err = compute() })
	return b.bytes, b.err
}
