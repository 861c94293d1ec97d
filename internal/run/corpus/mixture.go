package corpus

import (
	"math"
	"slices"
	"sync"

	"github.com/troupe-ml/troupe/internal/base/rng"
)

// mixBlock is the number of sequences in which each part has exactly its share. It is the least share that a part can have.
const mixBlock = 10_000

// mixture decides which part a sequence of the run is from. Sequences come in blocks of mixBlock. Each block has the same number of
// every part, in an order that the seed and the block's number determine. So a sequence's part, and its number in the part, need
// no position that could be lost. A mixture is safe for concurrent use.
type mixture struct {
	key    rng.Key
	quotas []int64 // sequences of each part in a block

	mu     sync.Mutex
	blocks [2]block // the last ones that were needed
}

// block is the parts of the sequences of a block.
type block struct {
	number int64
	part   []uint16
	count  []int32 // sequences of the same part before it in the block
}

// newMixture returns the mixture of parts with weights above 0.
func newMixture(seed uint64, weights []float64) *mixture {
	m := &mixture{key: rng.NewKey(seed, rng.StringStream("sources")), quotas: quotas(weights)}
	for i := range m.blocks {
		m.blocks[i].number = -1
	}
	return m
}

// quotas divides a block by weights: each part has its share, rounded down but at least 1, and the largest remainders get the rest.
func quotas(weights []float64) []int64 {
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	all, rest, left := make([]int64, len(weights)), make([]float64, len(weights)), int64(mixBlock)
	for i, w := range weights {
		exact := w / sum * mixBlock
		all[i] = max(int64(math.Floor(exact)), 1)
		rest[i] = exact - float64(all[i])
		left -= all[i]
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case rest[a] > rest[b]:
			return -1
		case rest[a] < rest[b]:
			return 1
		}
		return 0
	})
	for k := 0; left > 0; k = (k + 1) % len(order) {
		all[order[k]]++
		left--
	}
	for k := len(order) - 1; left < 0; k = (k + len(order) - 1) % len(order) { // tiny parts were rounded up
		if all[order[k]] > 1 {
			all[order[k]]--
			left++
		}
	}
	return all
}

// share returns the fraction of the sequences that are from a part.
func (m *mixture) share(part int) float64 { return float64(m.quotas[part]) / mixBlock }

// at returns the part of a sequence of the run, and its number among those of the part.
func (m *mixture) at(sequence int64) (part int, number int64) {
	if len(m.quotas) == 1 {
		return 0, sequence
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, i := m.block(sequence/mixBlock), sequence%mixBlock
	part = int(b.part[i])
	return part, b.number*m.quotas[part] + int64(b.count[i])
}

// count returns how many of the first n sequences of the run are from a part.
func (m *mixture) count(n int64, part int) int64 {
	if len(m.quotas) == 1 {
		return n
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	number := n / mixBlock
	b, count := m.block(number), number*m.quotas[part]
	for _, p := range b.part[:n%mixBlock] {
		if int(p) == part {
			count++
		}
	}
	return count
}

// block returns a block, which mu guards.
func (m *mixture) block(number int64) *block {
	for i := range m.blocks {
		if m.blocks[i].number == number {
			return &m.blocks[i]
		}
	}
	b := &m.blocks[number%2]
	b.number = number
	if b.part == nil {
		b.part, b.count = make([]uint16, mixBlock), make([]int32, mixBlock)
	}
	sorted := make([]uint16, 0, mixBlock)
	for part, quota := range m.quotas {
		for range quota {
			sorted = append(sorted, uint16(part))
		}
	}
	seen := make([]int32, len(m.quotas))
	for i := range b.part {
		part := sorted[rng.Permute(m.key, uint64(number), uint64(i), mixBlock)]
		b.part[i], b.count[i] = part, seen[part]
		seen[part]++
	}
	return b
}
