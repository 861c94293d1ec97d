package scheduler

import "fmt"

// The schedules that Generate knows.
const (
	// None runs one microbatch after the other on one rank: the unpipelined
	// training that every other schedule is compared with.
	None = "none"
	// GPipe runs all forwards, then all backwards.
	GPipe = "gpipe"
	// OneFOneB warms up, then runs one forward and one backward in turn.
	OneFOneB = "1f1b"
	// Interleaved is 1F1B with several chunks on each rank.
	Interleaved = "interleaved"
)

// Spec asks for a table.
type Spec struct {
	Schedule     string // "" means DefaultSchedule(Ranks, Chunks)
	Ranks        int
	Chunks       int // chunks on each rank
	Microbatches int
	// Group is how many microbatches of an interleaved schedule pass through a
	// chunk before the rank turns to its next chunk. 0 means Ranks.
	Group int
	// ForwardOnly leaves the backwards out, as validation does. Nothing is held
	// for a backward then, so an interleaved schedule takes any number of
	// microbatches.
	ForwardOnly bool
}

// DefaultSchedule returns the schedule for so many ranks and chunks: none for
// one rank, interleaved for several chunks, else 1f1b.
func DefaultSchedule(ranks, chunks int) string {
	switch {
	case ranks <= 1:
		return None
	case chunks > 1:
		return Interleaved
	}
	return OneFOneB
}

// resolve fills in the defaults and refuses numbers that contradict each other.
func (s Spec) resolve() (Spec, error) {
	s = s.withDefaults()
	fail := func(format string, args ...any) (Spec, error) {
		return Spec{}, fmt.Errorf("%w: %s", ErrSpec, fmt.Sprintf(format, args...))
	}
	if s.Ranks < 1 || s.Chunks < 1 || s.Microbatches < 1 {
		return fail("ranks %d, chunks %d, microbatches %d: each must be at least 1",
			s.Ranks, s.Chunks, s.Microbatches)
	}
	switch s.Schedule {
	case None:
		if s.Ranks > 1 {
			return fail("schedule none has no pipeline and runs on 1 rank, not %d: choose %s, or 1 rank",
				s.Ranks, DefaultSchedule(s.Ranks, s.Chunks))
		}
	case GPipe, OneFOneB:
		if s.Chunks > 1 {
			return fail("schedule %s holds 1 chunk on each rank, not %d: choose interleaved, or 1 chunk", s.Schedule, s.Chunks)
		}
	case Interleaved:
		if s.Chunks == 1 {
			return fail("schedule interleaved needs at least 2 chunks on each rank, not 1: raise the chunks, or choose %s",
				DefaultSchedule(s.Ranks, 1))
		}
	default:
		return fail("unknown schedule %q: choose none, gpipe, 1f1b or interleaved", shorten(s.Schedule))
	}
	if err := s.checkGroup(); err != nil {
		return fail("%v", err)
	}
	stagesMax := MaxActions / 2 / s.Microbatches // F and B
	if s.ForwardOnly {
		stagesMax = MaxActions / s.Microbatches
	}
	if s.Ranks > stagesMax/s.Chunks {
		return fail("ranks %d, chunks %d, microbatches %d make more than %d actions: lower one of them",
			s.Ranks, s.Chunks, s.Microbatches, MaxActions)
	}
	return s, nil
}

func (s Spec) withDefaults() Spec {
	if s.Schedule == "" {
		s.Schedule = DefaultSchedule(s.Ranks, s.Chunks)
	}
	if s.Group == 0 && s.Schedule == Interleaved {
		s.Group = s.Ranks
	}
	return s
}

// checkGroup holds the rules of interleaving. With fewer microbatches than ranks
// in a group, rank 0 would turn to its next chunk before the group's first
// microbatch has come around, and wait.
func (s Spec) checkGroup() error {
	if s.Schedule != Interleaved {
		if s.Group != 0 {
			return fmt.Errorf("group %d is for schedule interleaved, not %s: leave it out", s.Group, s.Schedule)
		}
		return nil
	}
	if s.Group < s.Ranks {
		return fmt.Errorf("group %d is below the %d ranks: raise it to at least %d", s.Group, s.Ranks, s.Ranks)
	}
	if s.ForwardOnly {
		return nil
	}
	if s.Group > s.Microbatches {
		if s.Group == s.Ranks {
			return fmt.Errorf("%d microbatches are fewer than the %d ranks of an interleaved schedule: use at least %d",
				s.Microbatches, s.Ranks, s.Ranks)
		}
		return fmt.Errorf("group %d is above the %d microbatches: lower it, %d is the least", s.Group, s.Microbatches, s.Ranks)
	}
	if rest := s.Microbatches % s.Group; rest != 0 && rest < s.Ranks {
		return fmt.Errorf("%d microbatches in groups of %d leave a last group of %d, below the %d ranks: use %d microbatches, or another group",
			s.Microbatches, s.Group, rest, s.Ranks, s.Microbatches-rest)
	}
	return nil
}
