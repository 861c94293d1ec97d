package scheduler

import (
	"fmt"
	"math"
)

// playShared is play on a machine whose ranks share cores. How long an action takes
// depends on what runs beside it, so this follows a clock, event by event.
func (p *player) playShared(m Machine) error {
	s := sharedPlay{player: p, left: make([]float64, p.table.NumRanks()), running: make([]int, p.table.NumRanks()), ended: make([]int, p.table.NumRanks())}
	for {
		soonest, err := s.begin()
		if err != nil {
			return err
		}
		n := 0
		least := math.Inf(1) // work left
		for r, width := range s.running {
			if width > 0 {
				n++
				least = min(least, s.left[r])
			}
		}
		if n == 0 && math.IsInf(soonest, 1) {
			break
		}
		rate := m.Share(max(n, 1))
		if !(rate > 0) || math.IsInf(rate, 1) {
			return fmt.Errorf("%w: %d actions at a time each run at %v of their speed, want a finite number above 0", ErrCosts, max(n, 1), rate)
		}
		step := least / rate
		arrives := soonest-s.now < step // a message, before any action ends
		if arrives {
			step = soonest - s.now
		}
		s.pass(step, rate, least, arrives)
	}
	for r, row := range p.table.Ranks {
		if p.next[r] < len(row) {
			return p.deadlock(r)
		}
	}
	p.timeline.Summarise()
	return nil
}

type sharedPlay struct {
	*player
	now     float64
	left    []float64 // by rank: work of what runs
	running []int     // by rank: actions that run as one, 0: none
	ended   []int     // by rank: actions that have ended
}

// begin starts what can start, and returns when the next input arrives that has been
// sent and is waited for.
func (s *sharedPlay) begin() (soonest float64, err error) {
	soonest = math.Inf(1)
	for again := true; again; { // a start gives a credit back
		again = false
		for r, row := range s.table.Ranks {
			if s.running[r] > 0 || s.next[r] == len(row) {
				continue
			}
			at := s.readyAt(r)
			if at > s.now {
				soonest = min(soonest, at)
				continue
			}
			if err := s.start(r); err != nil {
				return 0, err
			}
			again = true
		}
	}
	return soonest, nil
}

// readyAt is when a rank's next actions have what they need, infinite if that is not
// known yet.
func (s *sharedPlay) readyAt(rank int) float64 {
	at := s.now
	row, i := s.table.Ranks[rank], s.next[rank]
	for _, a := range row[i : i+Width(row, i)] {
		if in, ok := s.input(a); ok && in.position >= s.ended[in.rank] {
			return math.Inf(1)
		}
		ready, _, known := s.player.readyAt(rank, a)
		if !known {
			return math.Inf(1)
		}
		at = max(at, ready)
	}
	return at
}

func (s *sharedPlay) start(rank int) error {
	row, i := s.table.Ranks[rank], s.next[rank]
	s.running[rank] = Width(row, i)
	s.left[rank] = 0
	for _, a := range row[i : i+s.running[rank]] {
		c, err := s.cost(rank, a)
		if err != nil {
			return err
		}
		s.left[rank] += c
		s.timeline.Start[rank][s.next[rank]] = s.now
		s.next[rank]++
		s.deliver(a)
	}
	return nil
}

// pass lets time pass. Unless a message arrives first, what has the least work left ends.
func (s *sharedPlay) pass(step, rate, least float64, arrives bool) {
	s.now += step
	for r, width := range s.running {
		if width == 0 {
			continue
		}
		s.timeline.Busy[r] += step
		if s.left[r] > least || arrives {
			s.left[r] -= step * rate
			continue
		}
		for range width {
			s.timeline.End[r][s.ended[r]] = s.now
			s.ended[r]++
		}
		s.running[r] = 0
	}
}
