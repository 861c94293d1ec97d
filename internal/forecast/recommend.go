package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
)

// Option is a way to train a configuration's model: its grid, its pipeline and its microbatch,
// and what they are predicted to take.
type Option struct {
	Ranks         int    `json:"ranks"`
	Tensor        int    `json:"tensor"` // ranks that share each layer; of stages that differ the most
	Sequence      bool   `json:"sequence,omitempty"`
	Context       int    `json:"context"`
	Expert        int    `json:"expert"`                  // ranks that share the experts
	WholeExperts  bool   `json:"whole_experts,omitempty"` // of the ranks of tensor groups
	Overlap       bool   `json:"expert_overlap,omitempty"`
	Data          int    `json:"data"`
	Zero          int    `json:"zero,omitempty"`
	Stages        int    `json:"stages"`
	Chunks        int    `json:"chunks"`
	Schedule      string `json:"schedule"`
	Microbatch    int    `json:"microbatch"`
	Microbatches  int    `json:"microbatches"`
	Recompute     string `json:"recompute"`
	RecomputeKeep int    `json:"recompute_keep,omitempty"`
	Layout        string `json:"layout"`
	Fits          bool   `json:"fits"` // the devices' memory, where that was looked at
	// Misfit says why there is no Prediction: the grid has more ranks than there are devices.
	Misfit string `json:"misfit,omitempty"`
	*Prediction

	way  way
	plan *plan.Plan
}

// Plan is the option's.
func (o *Option) Plan() *plan.Plan { return o.plan }

// Recommendation is the result of a search.
type Recommendation struct {
	// Best is the fastest option that fits; of those within two hundredths of it, the
	// simplest. nil: none fits.
	Best *Option
	// Each of these holds, of all options that fit, the fastest for each grid, number of
	// stages, schedule, and size of microbatch, the fastest first.
	ByGrid, ByStages, BySchedule, ByMicrobatch []*Option
	// TooLarge are the fastest of those that would be faster than Best, but need more
	// memory than there is.
	TooLarge []*Option
	Tried    int // options that were played
	// Impossible is how many candidates could not be played, and Reason why the first could not.
	Impossible int
	Reason     error
	// Left are those that promised too little to be played.
	Left int
}

// equalTime is how much longer an option may take than the fastest and still be as good.
const equalTime = 1.02

// Recommend looks for the fastest way to train a configuration's model. It looks at the
// sizes of microbatches that the costs know.
func Recommend(ctx context.Context, b *plan.Plan, costs *Costs, cluster Devices) (*Recommendation, error) {
	cluster.recorded, cluster.befores = make(recordings), make(map[int]*plan.Before)
	s := &search{costs: costs, cluster: cluster, base: *b.Config(), model: b.Model()}
	if err := oneKind(b); err != nil {
		return nil, err
	}
	s.base.Model.From = ""                                         // its sizes are filled in
	s.base.Device.Kind, s.base.Device.Ranks = b.DeviceKind(0), nil // other numbers of ranks are tried
	s.base.Pipeline.Layout, s.base.Pipeline.Recompute, s.base.Pipeline.RecomputeKeep, s.base.Pipeline.MaxInFlight,
		s.base.Pipeline.DeferWeights = "", "none", 0, 0, 0
	s.base.Parallel = config.OnePipeline()
	if b.Config().Parallel.ExpertTensor == 1 { // 0 and other numbers say what each tensor size implies
		s.base.Parallel.ExpertTensor = 1
	}
	if err := cluster.Nodes.check(cluster.Devices); err != nil {
		return nil, err
	}
	s.experts = expertsOf(b.Model())
	s.trained, s.state = b.Model().TrainedOf(wholeModel(b.Model())), plan.Optimizer(b.Config()).StateBytes(b.Model())
	p := &Recommendation{}
	for rest, round := s.candidates(), 0; len(rest) > 0 && p.Best == nil && round < mostRounds; round++ {
		n := min(len(rest), mostPlayed)
		if err := s.playAll(ctx, rest[:n]); err != nil {
			return nil, err
		}
		p.Tried += len(s.options)
		if err := s.fit(ctx, p); err != nil {
			return nil, err
		}
		rest = rest[n:]
		p.Left = len(rest)
	}
	p.Impossible, p.Reason = s.impossible, s.reason
	if errors.Is(s.reason, plan.ErrMemory) {
		return p, nil
	}
	if p.Tried == 0 && s.reason != nil {
		return nil, s.reason
	}
	if p.Tried == 0 {
		return nil, fmt.Errorf("%w: no schedule fits %d layers and %d sequences with the measured sizes of microbatches", ErrCosts,
			s.base.Model.Layers, s.base.Batch.Sequences)
	}
	return p, nil
}

// mostRounds is how many times the search simulates mostPlayed candidates until one fits.
const mostRounds = 4

// wholeModel is one chunk of all layers.
func wholeModel(m *stages.Model) []stages.ChunkSpec {
	return []stages.ChunkSpec{{Last: len(m.Symbols())}}
}

// search looks through a configuration's options.
type search struct {
	costs   *Costs
	cluster Devices
	base    config.Config
	model   *stages.Model
	// The number of parameters that are trained, and the bytes of the optimizer's state.
	trained, state int64
	experts        experts

	someMayFit bool // of the candidates
	options    []*Option
	impossible int
	reason     error // why the first of these is
}

// way is what an option is made of.
type way struct {
	shape
	chunks     int
	schedule   string
	overlap    bool // of pairs, with expert groups
	microbatch int
	recompute  string
	keep       int
}

// shape is a grid.
type shape struct {
	tensor, context, data, stages int
	expert                        int  // ranks, of sharers, that share the experts
	whole                         bool // ranks of tensor groups have whole experts
	sequence                      bool
	zero                          int
}

// sharers is the number of ranks from which expert groups are cut.
func (g shape) sharers() int {
	if g.whole {
		return g.tensor * g.context * g.data
	}
	return g.context * g.data
}

// alone reports whether all ranks are one pipeline's.
func (g shape) alone() bool { return g.tensor*g.context*g.data == 1 }

// playAll simulates candidates. It leaves out those that are not possible.
func (s *search) playAll(ctx context.Context, all []candidate) error {
	s.options = nil
	for _, c := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := s.resolve(c.way)
		if b != nil && c.zero == 0 && s.someMayFit && s.tooLarge(b) {
			on := b.Grid()
			if b = s.inLargerGroups(&c.way); b == nil {
				s.leaveOut(fmt.Errorf("%w: on %v, weights, gradients and optimizer state alone need more than the %s of a device",
					plan.ErrMemory, on, plan.GiB(float64(s.cluster.MemoryBytes))))
				continue // nor would recomputation help
			}
		}
		var o *Option
		if err == nil && b != nil {
			o, err = s.predict(c.way, b)
		}
		switch {
		case err != nil:
			s.leaveOut(err)
		case o != nil:
			s.options = append(s.options, o)
		}
	}
	slices.SortStableFunc(s.options, faster)
	return nil
}

// leaveOut counts a candidate that can't be.
func (s *search) leaveOut(reason error) {
	if s.impossible++; s.reason == nil {
		s.reason = reason
	}
}

const (
	// manyDevices is from how many on replicas share more than the optimizer's state only where they must: what they save
	// by it takes long to find out.
	manyDevices = 8

	mostChunks = 4    // that are tried
	mostShared = 4    // ranks that are tried on one device
	mostAuto   = 1024 // visits of a table that the schedule auto is asked for
)

func faster(a, b *Option) int { return cmp.Compare(a.StepMS, b.StepMS) }

// shapes are the grids to try: on devices of their own, of all of them, the half, and so on, every way to share
// them among tensor groups, context groups of powers of two, replicas and stages; on one device stages alone, for which there is no memory
// to save. Where ranks may share experts, tensor groups divide each expert or have whole ones; parallel.expert_tensor = 1 is kept. Expert
// groups, which need no ranks of their own, are those of expertSizes.
func (s *search) shapes() (all []shape) {
	if s.cluster.Devices <= 1 {
		for p := 1; p <= min(mostShared, s.base.Model.Layers+2); p++ {
			all = append(all, shape{tensor: 1, context: 1, data: 1, expert: 1, stages: p})
		}
		return all
	}
	keep := s.base.Parallel.ExpertTensor == 1
	for world := s.cluster.Devices; world >= 1; world /= 2 {
		for tensor := 1; tensor <= world; tensor++ {
			if world%tensor != 0 {
				continue
			}
			kinds := make([]bool, 0, 2) // whole
			if (tensor == 1 || !keep) && s.model.CheckTensor(tensor) == nil {
				kinds = append(kinds, false)
			}
			if tensor > 1 && (keep || s.sharesExperts()) && s.model.CheckWholeExperts(tensor) == nil {
				kinds = append(kinds, true)
			}
			// no measured time says what attention block by block takes on a GPU
			for context := 1; context <= world/tensor && (context == 1 || s.base.Device.Kind != device.CUDA); context *= 2 {
				if world/tensor%context != 0 || s.model.CheckContext(context) != nil {
					continue
				}
				for _, whole := range kinds {
					all = s.sharing(all, shape{tensor: tensor, context: context, expert: 1, whole: whole}, world)
				}
			}
		}
	}
	return all
}

// sharing adds the shapes of so many ranks with given tensor and context groups.
func (s *search) sharing(all []shape, g shape, world int) []shape {
	rest := world / g.tensor / g.context
	for data := 1; data <= rest; data++ {
		g := g
		g.data, g.stages = data, rest/data
		if rest%data != 0 || data > s.base.Batch.Sequences || g.stages > s.base.Model.Layers+2 {
			continue
		}
		g.sequence = g.tensor > 1 && s.base.Model.Context/g.context%g.tensor == 0
		all = append(all, g)
		if g.context*data > 1 {
			g.zero = 1
			all = append(all, g)
		}
	}
	return all
}

// inGrids are the schedules that are tried with tensor groups and replicas, on one or two chunks: those that are
// the fastest of pipelines, and those that hold the least.
var inGrids = []string{scheduler.OneFOneB, scheduler.Interleaved, scheduler.ZBH1, scheduler.ZBV, scheduler.BreadthFirst}

// schedules are those to try with a number of chunks on each rank.
func (s *search) schedules(g shape, chunks, microbatches int) []string {
	if g.stages == 1 {
		return []string{scheduler.None}
	}
	if !g.alone() {
		if chunks > 2 {
			return nil
		}
		return inGrids
	}
	var out []string
	for _, name := range scheduler.Schedules() {
		switch name {
		case scheduler.None: // unpipelined
			continue
		case scheduler.Auto:
			if g.stages*chunks*microbatches > mostAuto || s.cluster.Devices <= 1 {
				continue
			}
		}
		out = append(out, name)
	}
	return out
}

// play predicts an option's time; nil: there is no such option.
func (s *search) play(w way) (*Option, error) {
	b, err := s.resolve(w)
	if b == nil || err != nil {
		return nil, err
	}
	return s.predict(w, b)
}

// predict is what a way's plan takes.
func (s *search) predict(w way, b *plan.Plan) (*Option, error) {
	o, err := newOption(b, s.costs, s.cluster)
	if err == nil {
		o.way = w
	}
	return o, err
}

// resolve is a way's plan; nil: there is none.
func (s *search) resolve(w way) (*plan.Plan, error) {
	c := s.base
	c.Pipeline.Stages, c.Pipeline.Chunks, c.Pipeline.Schedule = w.stages, w.chunks, w.schedule
	c.Pipeline.Recompute, c.Pipeline.RecomputeKeep = w.recompute, w.keep
	c.Pipeline.PostValidation = s.cluster.Devices > 1 && c.GainsByPostValidation() && w.tensor*w.context*w.expert == 1
	c.Parallel.Tensor, c.Parallel.Context, c.Parallel.Data, c.Parallel.Sequence, c.Parallel.Zero = []int{w.tensor}, w.context, w.data,
		w.sequence, w.zero
	c.Parallel.Expert, c.Parallel.ExpertOverlap = w.expert, w.overlap
	if w.whole {
		c.Parallel.ExpertTensor = 1
	}
	c.Batch.Microbatch = w.microbatch
	c.Pipeline.MicrobatchGroupSize = c.TableSpec().DefaultGroup()
	batch, err := s.costs.Batch(w.microbatch)
	if err != nil {
		return nil, err
	}
	b, err := plan.Resolve(&c, batch.of)
	if err != nil {
		return nil, nil
	}
	if !b.ZeroSaves() {
		return nil, nil
	}
	return b, nil
}

// Configured is the option that a configuration asks for as it stands. Where the devices are too few for its grid,
// it says so, and nothing is predicted.
func Configured(b *plan.Plan, costs *Costs, cluster Devices) (*Option, error) {
	if err := oneKind(b); err != nil {
		return nil, err
	}
	if err := cluster.room(b); err != nil {
		o := describe(b)
		o.Misfit = err.Error()
		return o, nil
	}
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
	o := describe(b)
	o.Prediction = p
	return o, nil
}

// describe is the option of a plan, without what is predicted of it.
func describe(b *plan.Plan) *Option {
	c := b.Config()
	return &Option{Ranks: b.Grid().World(), Tensor: b.Grid().Size(grid.Tensor), Context: b.Grid().Size(grid.Context),
		Expert: b.Grid().Size(grid.Expert), WholeExperts: b.Grid().WholeExperts(), Overlap: c.Parallel.ExpertOverlap,
		Data: b.Grid().Size(grid.Data), Sequence: c.Parallel.Sequence, Zero: c.Parallel.Zero,
		Stages: c.Pipeline.Stages, Chunks: c.Pipeline.Chunks, Schedule: c.Pipeline.Schedule, Microbatch: c.Batch.Microbatch,
		Microbatches: b.Table().Microbatches, Recompute: c.Pipeline.Recompute, RecomputeKeep: c.Pipeline.RecomputeKeep,
		Layout: b.Layout().String(),
		plan:   b}
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
	shown := make(map[any]bool)
	for _, o := range s.options {
		if err := ctx.Err(); err != nil {
			return err
		}
		kinds, new := o.kinds(), false
		for _, k := range kinds {
			new = new || !shown[k]
		}
		if o.StepMS > fastest*equalTime && !new {
			continue // neither recommended nor compared with
		}
		if err := o.measure(s.cluster); err != nil {
			s.leaveOut(err)
			continue
		}
		if !o.Fits && o.StepMS < fastest { // else it would not gain from recomputation
			p.TooLarge = append(p.TooLarge, o)
			var err error
			if o, err = s.recomputing(o); err != nil {
				s.leaveOut(err)
				continue
			}
		}
		if o != nil && o.Fits {
			for _, k := range kinds {
				shown[k] = true
			}
			fits = append(fits, o)
			fastest = min(fastest, o.StepMS)
		}
	}
	if len(fits) == 0 {
		return nil
	}
	slices.SortStableFunc(fits, faster)
	for i, list := range []*[]*Option{&p.ByGrid, &p.ByStages, &p.BySchedule, &p.ByMicrobatch} {
		*list = best(fits, func(o *Option) any { return o.kinds()[i] })
	}
	p.Best = fits[0]
	for _, o := range fits {
		if o.StepMS <= fits[0].StepMS*equalTime && simpler(o, p.Best) {
			p.Best = o
		}
	}
	p.TooLarge = slices.DeleteFunc(p.TooLarge, func(o *Option) bool { return o.StepMS >= p.Best.StepMS })
	return nil
}

// kinds are what options are compared by.
func (o *Option) kinds() [4]any {
	return [4]any{[6]any{o.Tensor, o.Context, o.Expert, o.WholeExperts, o.Data, o.Stages}, o.Stages, "schedule " + o.Schedule,
		fmt.Sprint("microbatch ", o.Microbatch)}
}

// recomputing is an option with replicas that share more or larger expert groups, or if those do not suffice with as little
// recomputation as makes it fit; nil: nothing does.
func (s *search) recomputing(o *Option) (*Option, error) {
	lean, err := s.leaner(o, false)
	if err != nil || lean != nil {
		return lean, err
	}
	w := o.way
	w.recompute = "full"
	full, err := s.leaner(&Option{way: w, plan: o.plan}, true)
	if err != nil || full == nil {
		return nil, err
	}
	return s.leastRecomputing(full)
}

// leaner returns the fastest of the options that fit with an option's size of expert groups, the next larger one and the largest, each
// with the lowest parallel.zero with which it fits; nil: none does. itself: the option may be the result.
func (s *search) leaner(o *Option, itself bool) (found *Option, err error) {
	most := o.way.zero
	if o.way.zero > 0 && (s.cluster.Devices <= manyDevices || s.tooLarge(o.plan)) {
		most = mostZero
	}
	for _, n := range s.largerGroups(o.way) {
		for z := o.way.zero; z <= most; z++ {
			w := o.way
			if w.expert, w.zero = n, z; w == o.way && !itself {
				continue
			}
			more, err := s.playFitting(w)
			if err != nil {
				return nil, err
			}
			if more != nil {
				if found == nil || more.StepMS < found.StepMS {
					found = more
				}
				break
			}
		}
	}
	return found, nil
}

// inLargerGroups gives a way larger expert groups, in which weights, gradients and the optimizer's state fit, and returns its plan; nil:
// there are none.
func (s *search) inLargerGroups(w *way) *plan.Plan {
	for _, n := range s.largerGroups(*w)[1:] {
		w.expert = n
		if b, err := s.resolve(*w); err == nil && b != nil && !s.tooLarge(b) {
			return b
		}
	}
	return nil
}

// largerGroups returns a way's size of expert groups, the next larger one and the largest.
func (s *search) largerGroups(w way) []int {
	sizes := []int{w.expert}
	all, _ := s.expertSizes(w.shape)
	if all = slices.DeleteFunc(all, func(n int) bool { return n <= w.expert }); len(all) > 0 && s.evenly(w) {
		sizes = append(sizes, all[0])
	}
	if len(all) > 1 && s.evenly(w) {
		sizes = append(sizes, all[len(all)-1])
	}
	return sizes
}

// mostZero is the highest parallel.zero that is tried; one that is refused, or saves nothing, is no option.
const mostZero = 3

// playFitting is an option if it fits; else nil. Memory comes first: to play takes longer.
func (s *search) playFitting(w way) (*Option, error) {
	b, err := s.resolve(w)
	if err != nil || b == nil {
		return nil, err
	}
	if s.tooLarge(b) {
		return nil, nil
	}
	held := &Option{Prediction: &Prediction{}, plan: b}
	if err := held.measure(s.cluster); err != nil || !held.Fits {
		return nil, err
	}
	o, err := s.predict(w, b)
	if err == nil {
		o.TensorBytes, o.CheckpointBytes, o.ShadowBytes = held.TensorBytes, held.CheckpointBytes, held.ShadowBytes
		o.LaneBytes, o.Before, o.shared, o.Fits = held.LaneBytes, held.Before, held.shared, true
	}
	return o, err
}

// tooLarge reports whether weights, gradients and the optimizer's state alone need more than a device has. A plan of which
// that can't be told is not.
func (s *search) tooLarge(b *plan.Plan) bool {
	if s.cluster.Devices <= 1 || s.cluster.MemoryBytes <= 0 {
		return false
	}
	least, err := b.LeastBytes()
	return err == nil && least > s.cluster.MemoryBytes
}

// leastRecomputing keeps the activations of as many microbatches as fit.
func (s *search) leastRecomputing(full *Option) (*Option, error) {
	found := full
	for low, high := 1, slices.Max(full.PeakInFlight); low <= high; {
		w := full.way
		w.recompute, w.keep = "partial", (low+high)/2
		partial, err := s.play(w)
		if err != nil || partial == nil {
			return found, err
		}
		if err := partial.measure(s.cluster); err != nil {
			return nil, err
		}
		if partial.Fits {
			found, low = partial, w.keep+1
		} else {
			high = w.keep - 1
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

// simpler prefers fewer ranks, then fewer of a tensor group, of a context group and of an expert group, fewer stages, fewer chunks, and the
// schedule that is listed first.
func simpler(a, b *Option) bool {
	names := scheduler.Schedules()
	return cmp.Or(cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Tensor, b.Tensor), cmp.Compare(a.Context, b.Context),
		cmp.Compare(a.Expert, b.Expert), cmp.Compare(a.Stages, b.Stages), cmp.Compare(a.Zero, b.Zero), cmp.Compare(a.Chunks, b.Chunks),
		cmp.Compare(slices.Index(names, a.Schedule), slices.Index(names, b.Schedule)), faster(a, b)) < 0
}
