package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// The schedules that Generate knows beside those that a program registers.
const (
	// None runs one microbatch after the other on one rank: the unpipelined
	// training that every other schedule is compared with.
	None = "none"
	// GPipe runs all forwards, then all backwards.
	GPipe = "gpipe"
	// OneFOneB warms up, then runs one forward and one backward in turn.
	OneFOneB = "1f1b"
	// EagerOneFOneB is 1F1B with twice the warm-up, which hides the way of messages
	// (arXiv 2211.05322; PaddlePaddle's Eager1F1B).
	EagerOneFOneB = "eager-1f1b"
	// Interleaved is 1F1B with several chunks on each rank (arXiv 2104.04473).
	Interleaved = "interleaved"
	// BreadthFirst takes all microbatches through one chunk, then through the next
	// (LoopedBFS, arXiv 2211.05953).
	BreadthFirst = "breadth-first"
	// ZBH1 and ZBH2 split the backward and put weight gradients off: with about
	// 1F1B's memory, and with twice as much (arXiv 2401.10241).
	ZBH1 = "zb-h1"
	ZBH2 = "zb-h2"
	// ZB1P is ZBH1 with several chunks on each rank (PyTorch's
	// InterleavedZeroBubble).
	ZB1P = "zb1p"
	// ZBV has no bubble where F, I and W take the same time; VHalf and VMin hold
	// about a half and a third of its outputs (arXiv 2405.15362).
	ZBV   = "zb-v"
	VHalf = "v-half"
	VMin  = "v-min"
	// DualPipeV runs a forward and a backward as one (DeepSeek's DualPipe, folded).
	DualPipeV = "dualpipev"
	// UShape closes on rank 0, which holds the first and the last chunk: layer-wise
	// disaggregated training.
	UShape = "u-shape"
	// Auto is the best table known for the costs and the bound of the spec.
	Auto = "auto"
)

// kind is what the spec of a schedule must obey.
type kind struct {
	name      string
	placement Placement
	perRank   [2]int // least and most on each rank
	grouped   bool   // takes a group, where there are several chunks
	rows      func(s Spec) ([][]Action, error)
}

const anyChunks = MaxActions

// Removed says what to choose instead of a schedule that earlier versions had; "": they had none of the name.
func Removed(name string) string {
	if name == "dynamic" {
		return `choose "zb-h1" or "auto": losses and checkpoints are the same`
	}
	return ""
}

// builtIn lists the schedules of this package as users should see them. Auto
// chooses among the others, and has the placement of what it chooses.
var builtIn []kind

func init() { // Auto's generator looks at kinds
	builtIn = []kind{
		{None, Loop, [2]int{1, anyChunks}, false, Spec.phases},
		{GPipe, Loop, [2]int{1, 1}, false, Spec.phases},
		{OneFOneB, Loop, [2]int{1, 1}, false, Spec.phases},
		{EagerOneFOneB, Loop, [2]int{1, 1}, false, Spec.phases},
		{Interleaved, Loop, [2]int{2, anyChunks}, true, Spec.phases},
		{BreadthFirst, Loop, [2]int{1, anyChunks}, false, Spec.phases},
		{ZBH1, Loop, [2]int{1, 1}, false, Spec.phases},
		{ZBH2, Loop, [2]int{1, 1}, false, Spec.phases},
		{ZB1P, Loop, [2]int{1, anyChunks}, true, Spec.phases},
		{ZBV, V, [2]int{2, 2}, false, byRank(Spec.zbv)},
		{VHalf, V, [2]int{2, 2}, false, forwardsOfZBV(Spec.vHalf)},
		{VMin, V, [2]int{2, 2}, false, forwardsOfZBV(Spec.vMin)},
		{DualPipeV, V, [2]int{2, 2}, false, forwardsOfZBV(byRank(Spec.dualPipeV))},
		{UShape, U, [2]int{2, 2}, false, Spec.uShape},
		{Auto, Loop, [2]int{1, anyChunks}, true, nil},
	}
	names := make([]string, len(builtIn))
	for i, k := range builtIn {
		names[i] = k.name
	}
	own = registry.New[kind]("schedule", names...)
}

// kinds are all schedules: those of this package, then what the program has registered.
func kinds() []kind {
	all := slices.Clone(builtIn)
	for _, name := range own.Names() {
		k, _ := own.Get(name)
		all = append(all, k)
	}
	return all
}

// Schedules lists the names of the schedules: those of this package, then those that the
// program has registered.
func Schedules() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// StagesOf lists the stages of the chunks of a pipeline in their order; false for a schedule that says where
// they are only with its table.
func StagesOf(schedule string, ranks, perRank int) (stages []int, ok bool) {
	k, ok := (Spec{Schedule: schedule}).kind()
	n, err := k.placement.Chunks(ranks, perRank)
	if !ok || schedule == Auto || err != nil || n > MaxActions || perRank < k.perRank[0] || perRank > k.perRank[1] {
		return nil, false
	}
	for v := range n {
		stages = append(stages, k.placement.Rank(v, ranks))
	}
	return stages, true
}

func (s Spec) kind() (kind, bool) {
	for _, k := range builtIn {
		if k.name == s.Schedule {
			return k, true
		}
	}
	return own.Get(s.Schedule)
}

// Spec asks for a table.
type Spec struct {
	Schedule     string // "" means DefaultSchedule(Ranks, Chunks)
	Ranks        int
	Chunks       int // chunks on each rank
	Microbatches int
	// MicrobatchGroupSize is how many microbatches of an interleaved schedule (Interleaved, ZB1P)
	// pass through a chunk before the rank turns to its next chunk. 0 means DefaultGroup().
	MicrobatchGroupSize int
	// MaxInFlight is the most outputs that a rank of Auto's table may hold, from a chunk's
	// F to its B or W. 0 means any number. Other schedules hold what they hold.
	MaxInFlight int
	// DeferWeights is the number of last microbatches whose weight gradients on the
	// last chunk wait for the end of the step. 0 means none, Microbatches all.
	DeferWeights int
	// Costs and Link are what Auto goes by: the time of an action, and that of a
	// message. nil means UnitCosts, and no time.
	Costs Costs
	Link  Link
	// ForwardOnly leaves the backwards out, as validation does. Nothing is held
	// for a backward then, so an interleaved schedule takes any number of
	// microbatches.
	ForwardOnly bool
}

// DefaultSchedule returns the schedule for a number of ranks and chunks: none for
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

// DefaultChunks returns the chunks on each rank that a schedule needs at least.
func DefaultChunks(schedule string) int {
	if k, ok := (Spec{Schedule: schedule}).kind(); ok {
		return k.perRank[0]
	}
	return 1
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
	k, ok := s.kind()
	switch least, most := k.perRank[0], k.perRank[1]; {
	case !ok && Removed(s.Schedule) != "":
		return fail("schedule %s was removed: %s", s.Schedule, Removed(s.Schedule))
	case !ok:
		return fail("unknown schedule %q: choose one of %s", shorten(s.Schedule), strings.Join(Schedules(), ", "))
	case s.Schedule == None && s.Ranks > 1:
		return fail("schedule none has no pipeline and runs on 1 rank, not %d: choose %s, or 1 rank",
			s.Ranks, DefaultSchedule(s.Ranks, s.Chunks))
	case s.Chunks < least && most > least:
		return fail("schedule %s needs at least %s on each rank, not %d: raise the chunks, or choose %s",
			s.Schedule, words.Plural(least, "chunk"), s.Chunks, DefaultSchedule(s.Ranks, 1))
	case (s.Chunks < least || s.Chunks > most) && most == 1:
		return fail("schedule %s holds 1 chunk on each rank, not %d: choose interleaved, or 1 chunk", s.Schedule, s.Chunks)
	case s.Chunks < least || s.Chunks > most:
		return fail("schedule %s holds %s on each rank, not %d", s.Schedule, words.Plural(most, "chunk"), s.Chunks)
	case s.Schedule == DualPipeV && !s.ForwardOnly && s.Microbatches < 2*s.Ranks:
		return fail("schedule dualpipev needs at least twice as many microbatches as its %s, %d, not %d: raise them, or choose zb-v",
			words.Plural(s.Ranks, "rank"), 2*s.Ranks, s.Microbatches)
	case s.DeferWeights < 0 || s.DeferWeights > s.Microbatches:
		return fail("the weight gradients of %s cannot wait for the end of a step of %d: want 0 to %d",
			words.Plural(s.DeferWeights, "microbatch"), s.Microbatches, s.Microbatches)
	case s.MaxInFlight < 0:
		return fail("max in flight %d: it cannot be negative", s.MaxInFlight)
	}
	if err := s.checkGroup(); err != nil {
		return fail("%v", err)
	}
	chunksMax := MaxActions / 3 / s.Microbatches // F, I and W
	switch s.Schedule {
	case None, GPipe, OneFOneB, EagerOneFOneB, Interleaved, BreadthFirst:
		chunksMax = MaxActions / 2 / s.Microbatches // F and B
	}
	if s.ForwardOnly {
		chunksMax = MaxActions / s.Microbatches
	}
	if s.Ranks > chunksMax/s.Chunks {
		return fail("ranks %d, chunks %d, microbatches %d make more than %d actions: lower one of them",
			s.Ranks, s.Chunks, s.Microbatches, MaxActions)
	}
	return s, nil
}

func (s Spec) withDefaults() Spec {
	if s.Schedule == "" {
		s.Schedule = DefaultSchedule(s.Ranks, s.Chunks)
	}
	if s.MicrobatchGroupSize == 0 && s.grouped() {
		s.MicrobatchGroupSize = leastGroup(s.Ranks, s.Microbatches)
	}
	return s
}

// DefaultGroup is the MicrobatchGroupSize that 0 means: the least group that fits, or, of a
// schedule that has no groups, the ranks. A group fits that has at least as many microbatches
// as there are ranks, and leaves none or as many for the last group; of fewer microbatches than
// ranks, the one of all of them.
func (s Spec) DefaultGroup() int {
	if s.MicrobatchGroupSize = 0; !s.grouped() {
		return max(1, s.Ranks)
	}
	return leastGroup(s.Ranks, s.Microbatches)
}

func leastGroup(ranks, microbatches int) int {
	if ranks < 1 || microbatches <= ranks {
		return max(1, microbatches)
	}
	// In r rounds groups have at least microbatches/r each, rounded up.
	for rounds := microbatches / ranks; ; rounds-- {
		group := (microbatches + rounds - 1) / rounds
		if last := microbatches % group; last == 0 || last >= ranks { // as with one round it is
			return group
		}
	}
}

// grouped says whether microbatches go through a rank's chunks in groups.
func (s Spec) grouped() bool {
	k, _ := s.kind()
	return k.grouped && s.Chunks > 1
}

// checkGroup holds the rules of interleaving. With fewer microbatches than ranks
// in a group, rank 0 would turn to its next chunk before the group's first
// microbatch has come around, and wait; only a step that has no more does.
func (s Spec) checkGroup() error {
	if !s.grouped() {
		if s.MicrobatchGroupSize != 0 {
			return fmt.Errorf("microbatch group size %d is for the schedules interleaved and zb1p with several chunks, not %s: leave it out",
				s.MicrobatchGroupSize, s.Schedule)
		}
		return nil
	}
	if s.Schedule == Auto {
		return nil // what the group does not fit is not chosen
	}
	group, fits := s.MicrobatchGroupSize, leastGroup(s.Ranks, s.Microbatches)
	switch {
	case group < 1:
		return fmt.Errorf("microbatch group size %d: want at least 1; leave it out for %d", group, fits)
	case group < s.Ranks && group < s.Microbatches:
		return fmt.Errorf("microbatch group size %d is below the %s: use %d, or leave it out", group, words.Plural(s.Ranks, "rank"), fits)
	case s.ForwardOnly:
		return nil
	case group > s.Microbatches:
		return fmt.Errorf("microbatch group size %d is above the %s: lower it, or leave it out for %d", group,
			words.Plural(s.Microbatches, "microbatch"), fits)
	}
	if last := s.Microbatches % group; last != 0 && last < s.Ranks {
		return fmt.Errorf("%s in groups of %d leave a last group of %d, below the %s: use groups of %d, or %s",
			words.Plural(s.Microbatches, "microbatch"), group, last, words.Plural(s.Ranks, "rank"), fits,
			words.Plural(s.Microbatches-last, "microbatch"))
	}
	return nil
}
