package hf

import "slices"

// mergeQueue merges long words, with a heap of possible merges: the lowest rank first, of equal
// ones the first in the word.
type mergeQueue struct {
	heap    []candidate
	symbols []symbol
}

type candidate struct {
	rank, at, merged int32
}

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

type symbol struct {
	id         int32 // -1: merged into another one
	prev, next int32 // -1: none
}

// merge appends the remaining symbols and, if starts is not nil, the number of the first original
// symbol of each.
func (q *mergeQueue) merge(t *pairTable, dst []int32, ids []int32, starts *[]int32) []int32 {
	q.heap = q.heap[:0]
	q.symbols = slices.Grow(q.symbols[:0], len(ids))
	for i, id := range ids {
		q.symbols = append(q.symbols, symbol{id, int32(i) - 1, int32(i) + 1})
	}
	q.symbols[len(ids)-1].next = -1
	for i := range len(ids) - 1 {
		if rank, merged := t.get(ids[i], ids[i+1]); rank != noRank {
			q.heap = append(q.heap, candidate{rank, int32(i), merged})
		}
	}
	for i := len(q.heap)/2 - 1; i >= 0; i-- {
		q.down(i)
	}
	for len(q.heap) > 0 {
		top := q.pop()
		s := &q.symbols[top.at]
		if s.id < 0 || s.next < 0 {
			continue
		}
		right := q.symbols[s.next]
		if rank, merged := t.get(s.id, right.id); rank == noRank || merged != top.merged {
			continue // it was about symbols that have merged since
		}
		q.symbols[s.next].id = -1
		s.id, s.next = top.merged, right.next
		if s.next >= 0 {
			q.symbols[s.next].prev = top.at
			q.add(t, top.at, s.id, q.symbols[s.next].id)
		}
		if s.prev >= 0 {
			q.add(t, s.prev, q.symbols[s.prev].id, s.id)
		}
	}
	for i := int32(0); i >= 0; i = q.symbols[i].next {
		dst = append(dst, q.symbols[i].id)
		if starts != nil {
			*starts = append(*starts, i)
		}
	}
	if cap(q.symbols) > maxKeptSymbols {
		*q = mergeQueue{} // one huge word must not hold memory forever
	}
	return dst
}

func (q *mergeQueue) add(t *pairTable, at, a, b int32) {
	rank, merged := t.get(a, b)
	if rank == noRank {
		return
	}
	q.heap = append(q.heap, candidate{rank, at, merged})
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.heap[i].before(q.heap[up]) {
			return
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *mergeQueue) pop() candidate {
	top := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	q.down(0)
	return top
}

func (q *mergeQueue) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.heap[child].before(q.heap[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
