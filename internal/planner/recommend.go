package planner

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
)

// Option is a way to train a configuration's model: its pipeline and its microbatch,
// and what they are predicted to take.
type Option struct {
	Stages        int    `json:"stages"`
	Chunks        int    `json:"chunks"`
	Schedule      string `json:"schedule"`
	Microbatch    int    `json:"microbatch"`
	Microbatches  int    `json:"microbatches"`
	Recompute     string `json:"recompute"`
	RecomputeKeep int    `json:"recompute_keep,omitempty"`
	Layout        string `json:"layout"`
	Fits          bool   `json:"fits"` // the devices' memory, where that was looked at
	*Prediction

	plan *plan.Plan
}

// Plan is the option's.
func (o *Option) Plan() *plan.Plan { return o.plan }

// Recommendation is the result of a search.
type Recommendation struct {
	// Best is the fastest option that fits; of those within two hundredths of it, the
	// simplest. nil: none fits.
	Best *Option
	// Each of these holds, of all options that fit, the fastest for each number of
	// stages, schedule, and size of microbatch, the fastest first.
	ByStages, BySchedule, ByMicrobatch []*Option
	// TooLarge are the fastest of those that would be faster than Best, but need more
	// memory than there is.
	TooLarge []*Option
	Tried    int // options that were played
}

// equalTime is how much longer an option may take than the fastest and still be as good.
const equalTime = 1.02

// Recommend looks for the fastest way to train a configuration's model. It looks at the
// sizes of microbatches that the costs know.
func Recommend(ctx context.Context, b *plan.Plan, costs *Costs, cluster Devices) (*Recommendation, error) {
	s := &search{costs: costs, cluster: cluster, base: *b.Config()}
	if err := oneKind(b); err != nil {
		return nil, err
	}
	s.base.Model.From = ""                                         // its sizes are filled in
	s.base.Device.Kind, s.base.Device.Ranks = b.DeviceKind(0), nil // other numbers of ranks are tried
	s.base.Pipeline.Layout, s.base.Pipeline.Recompute, s.base.Pipeline.RecomputeKeep, s.base.Pipeline.MaxInFlight, s.base.Pipeline.DeferWeights = "", "none", 0, 0, 0
	if err := s.playAll(ctx); err != nil {
		return nil, err
	}
	p := &Recommendation{Tried: len(s.options)}
	if err := s.fit(ctx, p); err != nil {
		return nil, err
	}
	return p, nil
}

// search looks through a configuration's options.
type search struct {
	costs   *Costs
	cluster Devices
	base    config.Config
	options []*Option
}

// playAll plays everything without recomputation, which only adds time.
func (s *search) playAll(ctx context.Context) error {
	for _, ranks := range s.rankCounts() {
		for _, batch := range s.costs.Batches {
			if s.base.Batch.Sequences%batch.Microbatch != 0 {
				continue
			}
			for chunks := 1; chunks <= mostChunks && (chunks == 1 || ranks > 1 && ranks*chunks <= s.base.Model.Layers+2); chunks++ {
				for _, name := range s.schedules(ranks, chunks, s.base.Batch.Sequences/batch.Microbatch) {
					if err := ctx.Err(); err != nil {
						return err
					}
					o, err := s.play(ranks, chunks, name, batch.Microbatch, "none", 0)
					if err != nil {
						return err
					}
					if o != nil {
						s.options = append(s.options, o)
					}
				}
			}
		}
	}
	if len(s.options) == 0 {
		return fmt.Errorf("%w: no schedule takes %d layers and %d sequences in microbatches of the sizes that have costs", ErrCosts, s.base.Model.Layers, s.base.Batch.Sequences)
	}
	slices.SortStableFunc(s.options, faster)
	return nil
}

const (
	mostChunks = 4    // that are tried
	mostShared = 4    // ranks that are tried on one device
	mostAuto   = 1024 // visits of a table that the schedule auto is asked for
)

func faster(a, b *Option) int { return cmp.Compare(a.StepMS, b.StepMS) }

// rankCounts are the numbers of ranks to try: on devices of their own, all of them, the
// half, and so on.
func (s *search) rankCounts() []int {
	var out []int
	if s.cluster.Devices <= 1 {
		for p := 1; p <= min(mostShared, s.base.Model.Layers+2); p++ {
			out = append(out, p)
		}
		return out
	}
	for p := s.cluster.Devices; p >= 1; p /= 2 {
		out = append(out, p)
	}
	return out
}

// schedules are those to try with a number of chunks on each rank.
func (s *search) schedules(ranks, chunks, microbatches int) []string {
	if ranks == 1 {
		return []string{scheduler.None}
	}
	var out []string
	for _, name := range scheduler.Schedules() {
		switch name {
		case scheduler.None, scheduler.Dynamic: // unpipelined; made while it runs
			continue
		case scheduler.Auto:
			if ranks*chunks*microbatches > mostAuto || s.cluster.Devices <= 1 {
				continue
			}
		}
		out = append(out, name)
	}
	return out
}

// play predicts an option's time; nil: there is no such option.
func (s *search) play(ranks, chunks int, schedule string, microbatch int, recompute string, keep int) (*Option, error) {
	c := s.base
	c.Pipeline.Stages, c.Pipeline.Chunks, c.Pipeline.Schedule, c.Pipeline.MicrobatchGroupSize = ranks, chunks, schedule, ranks
	c.Pipeline.Recompute, c.Pipeline.RecomputeKeep = recompute, keep
	c.Pipeline.PostValidation = s.cluster.Devices > 1 && c.GainsByPostValidation()
	c.Batch.Microbatch = microbatch
	batch, err := s.costs.Batch(microbatch)
	if err != nil {
		return nil, err
	}
	b, err := plan.Resolve(&c, batch.of)
	if err != nil {
		return nil, nil //nolint:nilerr // the schedule does not take these numbers
	}
	return newOption(b, s.costs, s.cluster)
}

// Configured is the option that a configuration asks for as it stands.
func Configured(b *plan.Plan, costs *Costs, cluster Devices) (*Option, error) {
	o, err := newOption(b, costs, cluster)
	if err != nil {
		return nil, err
	}
	return o, o.measure(cluster)
}

func newOption(b *plan.Plan, costs *Costs, cluster Devices) (*Option, error) {
	p, err := Predict(b, costs, cluster)
	if err != nil {
		return nil, err
	}
	c := b.Config()
	return &Option{Stages: c.Pipeline.Stages, Chunks: c.Pipeline.Chunks, Schedule: c.Pipeline.Schedule, Microbatch: c.Batch.Microbatch,
		Microbatches: b.Table().Microbatches, Recompute: c.Pipeline.Recompute, RecomputeKeep: c.Pipeline.RecomputeKeep, Layout: b.Layout().String(),
		Prediction: p, plan: b}, nil
}

// measure looks at the memory, once.
func (o *Option) measure(cluster Devices) error {
	if o.TensorBytes == nil {
		if err := o.Memory(o.plan, cluster); err != nil {
			return err
		}
	}
	o.Fits = cluster.MemoryBytes <= 0 || o.NeedBytes() <= cluster.MemoryBytes
	return nil
}

// fit looks at the options' memory, the fastest first, and at recomputation for those
// that need too much.
func (s *search) fit(ctx context.Context, p *Recommendation) error {
	var fits []*Option
	fastest := math.Inf(1) // of those that fit
	for _, o := range s.options {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := o.measure(s.cluster); err != nil {
			return err
		}
		if !o.Fits && o.StepMS < fastest { // else it would not gain from recomputation
			p.TooLarge = append(p.TooLarge, o)
			var err error
			if o, err = s.recomputing(o); err != nil {
				return err
			}
		}
		if o != nil && o.Fits {
			fits = append(fits, o)
			fastest = min(fastest, o.StepMS)
		}
	}
	if len(fits) == 0 {
		return nil
	}
	slices.SortStableFunc(fits, faster)
	p.ByStages = best(fits, func(o *Option) any { return o.Stages })
	p.BySchedule = best(fits, func(o *Option) any { return o.Schedule })
	p.ByMicrobatch = best(fits, func(o *Option) any { return o.Microbatch })
	p.Best = fits[0]
	for _, o := range fits {
		if o.StepMS <= fits[0].StepMS*equalTime && simpler(o, p.Best) {
			p.Best = o
		}
	}
	p.TooLarge = slices.DeleteFunc(p.TooLarge, func(o *Option) bool { return o.StepMS >= p.Best.StepMS })
	return nil
}

// recomputing is an option with as little recomputation as makes it fit; nil: nothing
// does.
func (s *search) recomputing(o *Option) (*Option, error) {
	full, err := s.play(o.Stages, o.Chunks, o.Schedule, o.Microbatch, "full", 0)
	if err != nil || full == nil {
		return nil, err
	}
	if err := full.measure(s.cluster); err != nil || !full.Fits {
		return nil, err
	}
	// The most microbatches whose activations can be kept.
	found := full
	for low, high := 1, slices.Max(o.PeakInFlight); low <= high; {
		keep := (low + high) / 2
		partial, err := s.play(o.Stages, o.Chunks, o.Schedule, o.Microbatch, "partial", keep)
		if err != nil || partial == nil {
			return found, err
		}
		if err := partial.measure(s.cluster); err != nil {
			return nil, err
		}
		if partial.Fits {
			found, low = partial, keep+1
		} else {
			high = keep - 1
		}
	}
	return found, nil
}

// best are the fastest of each kind, of options that are sorted.
func best(options []*Option, kind func(*Option) any) []*Option {
	var out []*Option
	seen := make(map[any]bool)
	for _, o := range options {
		if k := kind(o); !seen[k] {
			seen[k] = true
			out = append(out, o)
		}
	}
	return out
}

// simpler prefers fewer stages, fewer chunks, and the schedule that is listed first.
func simpler(a, b *Option) bool {
	names := scheduler.Schedules()
	return cmp.Or(cmp.Compare(a.Stages, b.Stages), cmp.Compare(a.Chunks, b.Chunks),
		cmp.Compare(slices.Index(names, a.Schedule), slices.Index(names, b.Schedule)), faster(a, b)) < 0
}
