package scheduler

import "math"

// cut spreads a body of parts with different costs. It starts with the cuts that give the cheapest
// costliest chunk, which is optimal if each rank has one chunk. Then it moves single parts along
// the chunks as long as that makes the ranks better, or equally good and the chunks more even. No
// chunk costs more than the costliest rank of the optimal layout. So with two chunks on each rank,
// the costliest rank costs at most twice the optimum.
func (b *balance) cut() {
	c := newCuts(b)
	c.even()
	c.improve()
	for i := range c.at[1:] {
		b.counts[i] = c.parts[c.at[i+1]] - c.parts[c.at[i]]
	}
}

// cuts are the places where a body is cut into chunks. A part of cost 0 is merged with the part
// before it, so that each move changes a cost.
type cuts struct {
	*balance
	at    []int     // chunk i has the parts from at[i] up to at[i+1]
	parts []int     // index in the body of each
	cost  []float64 // of all parts before each
	ranks []float64 // scratch for sums
}

func newCuts(b *balance) *cuts {
	c := &cuts{balance: b, at: make([]int, b.home+2), ranks: make([]float64, b.spec.Ranks)}
	total := 0.0
	for i, cost := range b.body {
		if i == 0 || cost > 0 {
			c.parts, c.cost = append(c.parts, i), append(c.cost, total)
		}
		total += cost
	}
	c.parts, c.cost = append(c.parts, len(b.body)), append(c.cost, total)
	return c
}

// fill gives each chunk in turn as many parts as the cost limit allows, and reports whether all
// parts fit.
func (c *cuts) fill(limit float64) bool {
	n, at := len(c.parts)-1, 0
	for i := range c.home + 1 {
		c.at[i] = at
		for at < n && c.extra[i]+c.cost[at+1]-c.cost[c.at[i]] <= limit {
			at++
		}
	}
	c.at[c.home+1] = n
	return at == n
}

// even finds the cuts with the cheapest costliest chunk, by bisection.
func (c *cuts) even() {
	low := 0.0 // too low a limit, or nearly
	for _, extra := range c.extra[:c.home+1] {
		low = max(low, extra)
	}
	high := 2 * (low + c.cost[len(c.cost)-1]) // holds all parts in one chunk, also after rounding
	for range balanceHalvings {
		if middle := low + (high-low)/2; c.fill(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	c.fill(high)
}

// score rates cuts; the most important criterion comes first.
type score struct {
	largest       float64 // costliest rank
	ranks, chunks float64 // sums of squares: less is more even
	early         float64 // costs by how early they are: early chunks hold more microbatches
}

func (s score) betterThan(o score) bool {
	const rounding = 1e-12
	for _, v := range [][2]float64{{s.largest, o.largest}, {s.ranks, o.ranks}, {s.chunks, o.chunks}, {s.early, o.early}} {
		if math.Abs(v[0]-v[1]) > rounding*v[1] {
			return v[0] < v[1]
		}
	}
	return false
}

func (c *cuts) score() score {
	clear(c.ranks)
	var s score
	for i, cost := range c.extra {
		if i <= c.home {
			cost += c.cost[c.at[i+1]] - c.cost[c.at[i]]
		}
		c.ranks[c.rank(i)] += cost
		s.chunks += cost * cost
		s.early += cost * float64(len(c.extra)-i)
	}
	for _, cost := range c.ranks {
		s.largest = max(s.largest, cost)
		s.ranks += cost * cost
	}
	return s
}

// improve tries to move a part from one chunk to another, near or far; the parts between move
// along. It ends when no such move is better, or after maxBalanceWork.
func (c *cuts) improve() {
	best, work := c.score(), 0
	for improved := true; improved; {
		improved = false
		for distance := 1; distance <= c.home; distance++ {
			for first := 0; first+distance <= c.home; first++ {
				for _, step := range [...]int{-1, 1} {
					tried, kept := 0, 0 // moves
					for tried < balanceMoves && c.move(first, distance, step) {
						tried++
						work += len(c.extra) + distance
						if s := c.score(); s.betterThan(best) {
							best, kept, improved = s, tried, true
						}
					}
					for ; tried > kept; tried-- {
						c.move(first, distance, -step)
					}
					if work++; work > maxBalanceWork {
						return
					}
				}
			}
		}
	}
}

// move moves a part to the first chunk from the chunk at a distance (step −1), or in the other
// direction (step 1), if there is one.
func (c *cuts) move(first, distance, step int) bool {
	between := c.at[first+1 : first+distance+1]
	if step < 0 && between[0] == c.at[first] || step > 0 && between[distance-1] == c.at[first+distance+1] {
		return false
	}
	for i := range between {
		between[i] += step
	}
	return true
}
