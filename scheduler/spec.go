package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// The built-in schedules. A program may register more.
const (
	// None runs one microbatch after the other on one rank. It is the training without a pipeline
	// to which every other schedule is compared.
	None = "none"
	// GPipe runs all forwards, then all backwards.
	GPipe = "gpipe"
	// OneFOneB warms up, then alternates one forward and one backward.
	OneFOneB = "1f1b"
	// EagerOneFOneB is 1F1B with twice the warm-up, which hides the latency of messages (arXiv
	// 2211.05322; PaddlePaddle's Eager1F1B).
	EagerOneFOneB = "eager-1f1b"
	// Interleaved is 1F1B with several chunks on each rank (arXiv 2104.04473).
	Interleaved = "interleaved"
	// BreadthFirst takes all microbatches through one chunk, then through the next (LoopedBFS,
	// arXiv 2211.05953).
	BreadthFirst = "breadth-first"
	// ZBH1 and ZBH2 split the backward and delay the weight gradients: ZBH1 with about 1F1B's
	// memory, ZBH2 with twice as much (arXiv 2401.10241).
	ZBH1 = "zb-h1"
	ZBH2 = "zb-h2"
	// ZB1P is ZBH1 with several chunks on each rank (PyTorch's
	// InterleavedZeroBubble).
	ZB1P = "zb1p"
	// ZBV has no bubble if F, I and W take the same time. VHalf and VMin hold about a half and a
	// third of its outputs (arXiv 2405.15362).
	ZBV   = "zb-v"
	VHalf = "v-half"
	VMin  = "v-min"
	// DualPipeV runs a forward and a backward as one (DeepSeek's DualPipe, folded).
	DualPipeV = "dualpipev"
	// UShape ends on rank 0, which holds the first and the last chunk: layer-wise disaggregated
	// training.
	UShape = "u-shape"
	// Auto chooses the fastest known table for the spec's costs and bound.
	Auto = "auto"
)

// kind holds the rules for the spec of a schedule.
type kind struct {
	name      string
	placement Placement
	perRank   [2]int // smallest and largest number on each rank
	grouped   bool   // uses groups of microbatches if there are several chunks
	rows      func(s Spec) ([][]Action, error)
}

const anyChunks = MaxActions

// Removed says what to choose instead of a schedule that earlier versions had; "" if no earlier
// version had a schedule of that name.
func Removed(name string) string {
	if name == "dynamic" {
		return `choose "zb-h1" or "auto": losses and checkpoints are the same`
	}
	return ""
}

// builtIn lists the built-in schedules in the order in which users see them. Auto chooses among the
// others and has the placement of its choice.
var builtIn []kind

func init() { // not an initializer: Auto's generator reads kinds
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

// kinds returns all schedules: the built-in ones, then those that the program registered.
func kinds() []kind {
	all := slices.Clone(builtIn)
	for _, name := range own.Names() {
		k, _ := own.Get(name)
		all = append(all, k)
	}
	return all
}

// Schedules returns the names of all schedules: the built-in ones, then those that the program
// registered.
func Schedules() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// StagesOf returns the stage of each chunk of a pipeline, in the order of the chunks. It returns
// false for a schedule whose placement is known only with its table.
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

// Spec describes the table to generate.
type Spec struct {
	Schedule     string // "" means DefaultSchedule(Ranks, Chunks)
	Ranks        int
	Chunks       int // chunks on each rank
	Microbatches int
	// MicrobatchGroupSize is the number of microbatches that pass through a chunk of an interleaved
	// schedule (Interleaved, ZB1P) before the rank turns to its next chunk. 0 means DefaultGroup().
	MicrobatchGroupSize int
	// MaxInFlight limits the outputs that a rank of Auto's table may hold, each from its chunk's F
	// to its B or W. 0 means no limit. Other schedules ignore it.
	MaxInFlight int
	// DeferWeights is the number of last microbatches whose weight gradients on the last chunk run
	// at the end of the step. 0 means none; Microbatches means all.
	DeferWeights int
	// Pairs joins each backward that stands directly before a forward of another microbatch or chunk
	// with that forward: they run as one (Action.Overlap), so that one computes while the other's
	// tokens travel to their experts. OneFOneB then warms up as EagerOneFOneB does. Rows that have
	// pairs keep them. It is an error if there would be none.
	Pairs bool
	// Costs and Link are the time of an action and the time of a message, for Auto's choice. nil
	// means UnitCosts and no time.
	Costs Costs
	Link  Link
	// ForwardOnly leaves the backwards out, as validation does. Then no output is held for a
	// backward, so an interleaved schedule takes any number of microbatches.
	ForwardOnly bool
}

// DefaultSchedule returns the default for a number of ranks and of chunks on each rank: none for
// one rank, interleaved for several chunks, otherwise 1f1b.
func DefaultSchedule(ranks, chunks int) string {
	switch {
	case ranks <= 1:
		return None
	case chunks > 1:
		return Interleaved
	}
	return OneFOneB
}

// DefaultChunks returns the smallest number of chunks on each rank that a schedule needs.
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
		return fail("schedule none has no pipeline and runs on 1 rank, not %d: choose %s, or use 1 rank",
			s.Ranks, DefaultSchedule(s.Ranks, s.Chunks))
	case s.Chunks < least && most > least:
		return fail("schedule %s needs at least %s on each rank, not %d: use more chunks, or choose %s",
			s.Schedule, words.Plural(least, "chunk"), s.Chunks, DefaultSchedule(s.Ranks, 1))
	case (s.Chunks < least || s.Chunks > most) && most == 1:
		return fail("schedule %s holds 1 chunk on each rank, not %d: choose interleaved, or use 1 chunk", s.Schedule, s.Chunks)
	case s.Chunks < least || s.Chunks > most:
		return fail("schedule %s holds %s on each rank, not %d", s.Schedule, words.Plural(most, "chunk"), s.Chunks)
	case s.Schedule == DualPipeV && !s.ForwardOnly && s.Microbatches < 2*s.Ranks:
		return fail("schedule dualpipev on %s needs at least %d microbatches, twice the number of ranks, not %d: use more microbatches, or choose zb-v",
			words.Plural(s.Ranks, "rank"), 2*s.Ranks, s.Microbatches)
	case s.DeferWeights < 0 || s.DeferWeights > s.Microbatches:
		return fail("cannot defer the weight gradients of %s in a step of %d: want 0 to %d",
			words.Plural(s.DeferWeights, "microbatch"), s.Microbatches, s.Microbatches)
	case s.MaxInFlight < 0:
		return fail("max in flight %d: the number cannot be negative", s.MaxInFlight)
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

// DefaultGroup returns the MicrobatchGroupSize that 0 stands for: the smallest group that fits, or
// the number of ranks for a schedule without groups. A group fits if it has at least as many
// microbatches as there are ranks, and the last group is either full or also has at least that
// many. With fewer microbatches than ranks the group holds all of them.
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
	// In r rounds each group has at least microbatches/r microbatches, rounded up.
	for rounds := microbatches / ranks; ; rounds-- {
		group := (microbatches + rounds - 1) / rounds
		if last := microbatches % group; last == 0 || last >= ranks { // always true for one round
			return group
		}
	}
}

// grouped reports whether microbatches pass through a rank's chunks in groups.
func (s Spec) grouped() bool {
	k, _ := s.kind()
	return k.grouped && s.Chunks > 1
}

// checkGroup checks the rules of interleaving. With fewer microbatches than ranks in a group, rank
// 0 would turn to its next chunk before the group's first microbatch has come around, and wait.
// Only a step with fewer microbatches than ranks may have such a group.
func (s Spec) checkGroup() error {
	if !s.grouped() {
		if s.MicrobatchGroupSize != 0 {
			return fmt.Errorf("microbatch group size %d: only the schedules interleaved and zb1p with several chunks have groups, not %s: leave it out",
				s.MicrobatchGroupSize, s.Schedule)
		}
		return nil
	}
	if s.Schedule == Auto {
		return nil // Auto does not choose a schedule that the group does not fit
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
