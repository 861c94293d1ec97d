package plan

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// usualActions is the longest row that is recorded completely.
const usualActions = 4096

// dryActions is the number of actions of a rank's row that are recorded to reach its peak: all of a row of
// usual length. Of a longer row, it covers the part until the rank holds the most outputs, and then one
// period in which the row repeats itself: a group of microbatches through every chunk and back, times the
// window of partial recomputation.
func (p *Plan) dryActions(rank, usual int) int {
	if p.zero() > 1 { // what a chunk's last microbatch frees counts
		usual = 1 << 16
	}
	cycle := p.cfg.Pipeline.MicrobatchGroupSize
	if p.cfg.Pipeline.Recompute == "partial" {
		cycle *= p.table.ForwardsAhead(rank)
	}
	return max(usual, p.table.PeakAt(rank)+3*p.spec.Chunks*cycle)
}

// MemoryBytes returns the tensor memory of the fullest rank of each stage in bytes. It records
// the rank's row of the table without executing it.
func (p *Plan) MemoryBytes() ([]int64, error) {
	bytes := make([]int64, p.table.NumRanks())
	for r, row := range p.table.Ranks {
		var err error
		if bytes[r], err = p.dryRun(r, row[:min(len(row), p.dryActions(r, usualActions))]); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return bytes, nil
}

// LeastBytes returns the memory of the fullest rank's weights, gradients and optimizer state in bytes, without
// activations: a lower bound, found without recording passes.
func (p *Plan) LeastBytes() (most int64, err error) {
	for _, kind := range p.stagesByKind() {
		stage := kind[0]
		dry, o := tensorops.NewDryStream(), p.dryOptions(stage, place{})
		o.BriefGrads = false // all gradients exist at the update
		st, err := stages.NewStage(p.model, dry, p.chunks[stage], o)
		if err != nil {
			return 0, fmt.Errorf("stage %d: %w", stage, err)
		}
		most = max(most, dry.Memory().InUse)
		if err := st.Close(); err != nil {
			return 0, fmt.Errorf("stage %d: %w", stage, err)
		}
	}
	return most, nil
}

// dryRun records a row of a stage, as stage actors do, and returns the memory of the fullest pool of its ranks.
func (p *Plan) dryRun(stage int, row []scheduler.Action) (most int64, err error) {
	places, err := p.fullestPlaces(stage)
	if err != nil {
		return 0, err
	}
	for _, at := range places {
		bytes, err := p.dryRunAt(stage, at, row)
		if err != nil {
			return 0, err
		}
		most = max(most, bytes)
	}
	return most, nil
}

func (p *Plan) dryRunAt(rank int, at place, row []scheduler.Action) (bytes int64, err error) {
	return p.dryRunOn(tensorops.NewDryStream(), rank, at, row)
}

// dryRunOn is dryRunAt on a new stream.
func (p *Plan) dryRunOn(dry *tensorops.DryStream, rank int, at place, row []scheduler.Action) (bytes int64, err error) {
	st, err := stages.NewStage(p.model, dry, p.chunks[rank], p.dryOptions(rank, at))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := st.DryLoad(); err != nil {
		return 0, err
	}
	if p.cfg.Pipeline.PostValidation {
		// It keeps copies from the end of the first step on.
		l := dry.NewList()
		st.SpeculativeApply(l, stages.Update{Count: 1})
		if err := tensorops.Run(dry, l); err != nil {
			return 0, err
		}
	}
	d := p.newDry(st, rank, p.table, p.microbatches())
	scratch := p.newScratch(rank)
	for i := 0; i < len(row); {
		a, l, width := row[i], dry.NewList(), 1
		if p.cfg.Parallel.ExpertOverlap { // the passes of a pair hold their memory at one time
			width = scheduler.Width(row, i)
		}
		d.together(l, d.table.OwnTurns(rank, i), row[i:i+width])
		if scratch != nil {
			if err := p.checkCalls(rank, l.Ops()); err != nil {
				return 0, err
			}
			scratch.launch(a, l.Ops())
		}
		if err := tensorops.Run(dry, l); err != nil {
			return 0, fmt.Errorf("%v: %w", a, err)
		}
		i += width
	}
	l := dry.NewList()
	st.TiedGrads(l, p.tiedPlaces(rank))
	if err := tensorops.Run(dry, l); err != nil {
		return 0, err
	}
	if p.grid.HasExpertGroups() { // the gradients of experts travel in pieces
		l := dry.NewList()
		for _, g := range st.MissingTied(l) {
			if err := st.TakeTied(g); err != nil {
				return 0, err
			}
		}
		st.GradNorms(l)
		if err := tensorops.Run(dry, l); err != nil {
			return 0, err
		}
	}
	if p.cfg.Muon() || p.cfg.NarrowState() { // products, or pieces of the state in float32, need memory
		l := dry.NewList()
		st.Apply(l, stages.Update{Count: 1})
		if err := tensorops.Run(dry, l); err != nil {
			return 0, err
		}
	}
	return dry.Memory().Taken + scratch.bytes() + p.underWay(rank), nil
}

// dryPasses record the actions of a stage, as a stage actor does.
type dryPasses struct {
	*Plan
	st        *stages.Stage
	rank      int // of the pipeline
	table     *scheduler.Table
	of        int // see stages.Microbatch
	tensor    int // place in the tensor group that receives pieces; -1: inputs arrive whole
	ids       []int32
	starts    []int32
	fields    map[string]tensorops.Array
	recompute func(rank, microbatch int) bool
	headLater func(microbatches, microbatch int) bool
}

func (p *Plan) newDry(st *stages.Stage, rank int, table *scheduler.Table, of int) *dryPasses {
	n := p.cfg.Batch.Microbatch * p.cfg.Model.Context
	return &dryPasses{p, st, rank, table, of, -1, make([]int32, n), p.starts(n),
		p.model.Sample(p.cfg.Batch.Microbatch), p.Recomputes(), p.HeadLater()}
}

// together records an action, or those of an overlapped pair, whose parts run in the order of turns; nil: in the usual one.
func (d *dryPasses) together(l *tensorops.List, turns []int, actions []scheduler.Action) {
	var passes []func()
	for _, a := range actions {
		passes = append(passes, func() { d.act(l, a) })
	}
	stages.ActTogether(d.st, turns, passes...)
}

// act records an action of a microbatch of full size.
func (d *dryPasses) act(l *tensorops.List, a scheduler.Action) {
	for _, t := range d.pass(l, a) {
		l.Free(t)
	}
}

// pass is act without freeing the outputs.
func (d *dryPasses) pass(l *tensorops.List, a scheduler.Action) []tensorops.Tensor {
	var mb stages.Microbatch
	v, i := int(a.Chunk), int(a.Microbatch)
	if a.Type == scheduler.F {
		mb = stages.Microbatch{Step: 1, Index: i, Sequences: d.cfg.Batch.Microbatch, Positions: d.cfg.Model.Context, Extra: d.extra(),
			Tokens: d.ids, Targets: d.ids, Starts: d.starts, Train: !d.table.ForwardOnly}
		if mb.Train {
			mb.Of = d.of
			mb.Recompute = d.recompute(d.rank, i)
			mb.HeadLater = d.headLater(d.table.Microbatches, i)
		}
		for _, name := range d.st.Fields(v) {
			mb.Fields = append(mb.Fields, d.fields[name])
		}
	}
	in := d.inputs(l, d.st, a, !d.table.ForwardOnly)
	if d.tensor >= 0 {
		d.arrive(l, a, &mb, in)
	}
	return stages.Act(l, d.st, a, &mb, in...)
}

// arrive records how inputs that arrive in pieces become whole.
func (d *dryPasses) arrive(l *tensorops.List, a scheduler.Action, mb *stages.Microbatch, in []tensorops.Tensor) {
	if len(in) == 0 || !d.model.Config.Language() {
		return
	}
	from := d.table.RankOf(int(a.Chunk) - 1)
	if a.Type != scheduler.F {
		from = d.table.RankOf(int(a.Chunk) + 1)
	}
	e := grid.NewEdge(d.grid.TensorSize(from), d.grid.TensorSize(d.rank), d.sequence(), d.way())
	t := in[0]
	switch {
	case !t.Valid():
		return
	case e.To == 1:
	case e.Way == grid.Scatter:
		part := l.Alloc(t.DType(), t.Dim(0), t.Dim(1)/e.To, t.Dim(2))
		l.Free(t)
		t = part
	case e.Way == grid.Broadcast && d.tensor > 0:
		l.Free(t)
		in[0] = stages.Arrive(l, d.st, a, mb, &e)
		return
	}
	in[0] = stages.Arrive(l, d.st, a, mb, &e, t)
}

// checkCalls rejects operations in Go on a GPU.
func (p *Plan) checkCalls(rank int, ops []tensorops.Op) error {
	for i := range ops {
		if o := &ops[i]; o.Kind == tensorops.KindCall {
			return p.cfg.Errorf(device.Key(p.cfg),
				"rank %d is on a GPU, but part of %q is Go code, which only the CPU computes; put the stages of such layers on \"cpu\" with device.ranks",
				rank, o.Call().Name)
		}
	}
	return nil
}

// inputs allocates the inputs of an action.
func (p *Plan) inputs(l *tensorops.List, st *stages.Stage, a scheduler.Action, train bool) (in []tensorops.Tensor) {
	if a.Type == scheduler.W {
		return nil
	}
	if !p.model.Config.Language() {
		ins, grads := p.model.Takes(p.all[a.Chunk])
		if a.Type != scheduler.F {
			ins = grads
		}
		for _, v := range ins {
			in = append(in, l.Alloc(p.shapes[v].DType, p.shapes[v].Dims...))
		}
		return in
	}
	if _, grads := p.model.Takes(p.all[a.Chunk]); a.Type != scheduler.F && len(grads) == 0 {
		return nil
	}
	depths, after := st.Depths(int(a.Chunk))
	width := p.model.EdgeWidth(p.all[a.Chunk].First)
	if a.Type != scheduler.F {
		depths, width = after, p.model.EdgeWidth(p.all[a.Chunk].Last)
	}
	if !train {
		depths = 1
	}
	if last := int32(p.table.NumChunks - 1); a.Type == scheduler.F && a.Chunk == 0 || a.Type != scheduler.F && a.Chunk == last {
		return nil
	}
	shape, err := p.edgeShape(p.table.RankOf(int(a.Chunk)), depths, width)
	if err != nil {
		l.Fail(err)
		return nil
	}
	return []tensorops.Tensor{l.Alloc(shape.DType, shape.Dims...)}
}

// SkipBytes returns the number of tensors that a skip edge carries for a microbatch, and their size in bytes.
func (p *Plan) SkipBytes(skip int) (tensors int, bytes int64) {
	s := p.table.Skips[skip]
	for i, v := range p.model.Gives(p.all[s.From]) {
		if p.routes[s.From].Outs[i].Chunk == s.To {
			tensors, bytes = tensors+1, bytes+p.shapes[v].Bytes()
		}
	}
	return tensors, bytes
}

// underWay is the memory of a rank's outputs on skip edges, which wait long for their
// chunk.
func (p *Plan) underWay(rank int) (bytes int64) {
	for k, s := range p.table.Skips {
		if p.table.RankOf(s.From) != rank {
			continue
		}
		_, each := p.SkipBytes(k)
		bytes += int64(p.report.Credits.SkipForward[k]) * each
	}
	return bytes + p.behindStream(rank)
}

// behindStream is the memory of what outputs of a language model's rank have behind the residual stream until their chunk takes them. That
// keeps the residual stream itself as the input of its first layer.
func (p *Plan) behindStream(rank int) (bytes int64) {
	if !p.model.Config.Language() {
		return 0
	}
	count := func(outputs, layer int) {
		if width := p.model.EdgeWidth(layer) - p.model.Config.Hidden; width > 0 {
			if shape, err := p.edgeShape(rank, 1, width); err == nil {
				bytes += int64(outputs) * shape.Bytes()
			}
		}
	}
	for _, spec := range p.chunks[rank] {
		count(p.report.Credits.Forward[spec.Chunk], spec.Last)
		count(p.report.Credits.Backward[spec.Chunk], spec.First)
	}
	return bytes
}

// SetKernels sets the kernel path of GPUs, if it is known: their scratch memory
// depends on it.
func (p *Plan) SetKernels(path string) { p.kernels = path }

// CheckMemory rejects a model that does not fit: its tensors into the free memory of the GPUs, if that is
// known, and the tensors of other ranks, with the copy for a checkpoint, into this machine's
// memory.
//
// If all tensors are in this machine's memory and only the copy does not fit, there is no error: inPlace is then the
// warning that checkpoints are written from the tensors themselves, and why.
func (p *Plan) CheckMemory(gpus []device.GPU) (inPlace string, err error) {
	err = p.withFewerPacks(func() (err error) {
		inPlace, err = p.checkMemory(gpus)
		return err
	})
	return inPlace, err
}

func (p *Plan) checkMemory(gpus []device.GPU) (inPlace string, err error) {
	ranks, err := p.MemoryBytes()
	if errors.Is(err, tensorops.ErrOutOfMemory) {
		return "", p.cfg.Errorf("model.hidden", "%w on any machine: %v", ErrMemory, err)
	}
	if err != nil {
		return "", err
	}
	beyond, err := p.checkLimit(ranks, nil)
	if err != nil {
		return "", err
	}
	var tensors float64 // bytes; a float64, so that no sum overflows
	for r, b := range ranks {
		if device.KindOf(p.cfg, r) != device.CUDA {
			tensors += float64(b) * float64(p.ranksOf(r)) // at most
		}
	}
	const advice = "use a smaller model, a smaller batch.microbatch or fewer microbatches in flight, or set pipeline.recompute"
	parameters := p.model.Parameters()
	for _, g := range gpus {
		var onGPU float64
		for _, r := range g.Ranks {
			onGPU += float64(ranks[p.stageOf(r)])
		}
		if g.FreeBytes <= 0 || onGPU <= float64(g.FreeBytes) {
			continue
		}
		where := "the GPU"
		if len(gpus) > 1 {
			where = fmt.Sprintf("%s (ranks %d)", g.Name, g.Ranks)
		}
		return "", p.cfg.Errorf("model.hidden", "%w: the model of %d parameters needs %s of tensors on %s, but it has %s free; %s",
			ErrMemory, parameters, GiB(onGPU), where, GiB(float64(g.FreeBytes)), advice)
	}
	copied, err := p.checkpointBytes()
	if err != nil {
		return "", err
	}
	copyBytes := float64(copied)
	need := tensors + copyBytes
	free := float64(device.HostFreeBytes())
	if free > 0 && need > free && tensors <= free && p.AllOnHost() {
		return fmt.Sprintf("a checkpoint's copy of %s does not fit beside %s of tensors: this machine has %s free. Checkpoints are written from the tensors themselves, and training waits for them",
			GiB(copyBytes), GiB(tensors), GiB(free)), nil
	}
	if free > 0 && need > free {
		return "", p.cfg.Errorf("model.hidden",
			"%w: the model of %d parameters needs %s (%s of tensors, %s for the copy of a checkpoint), but this machine has %s free; %s",
			ErrMemory, parameters, GiB(need), GiB(tensors), GiB(copyBytes), GiB(free), advice)
	}
	if p.AllOnHost() {
		inPlace = beyond
	}
	return inPlace, nil
}

// limitBytes is device.memory_gib in bytes; 0: no limit.
func (p *Plan) limitBytes() int64 { return int64(p.cfg.Device.MemoryGiB * (1 << 30)) }

// CheckDeviceMemory rejects ranks whose tensors, with the shadows that they hold, need more than device.memory_gib, or more than bytes, the
// memory of each rank's device; 0: not known.
func (p *Plan) CheckDeviceMemory(bytes int64) error {
	return p.withFewerPacks(func() error { return p.checkDeviceMemory(bytes) })
}

func (p *Plan) checkDeviceMemory(bytes int64) error {
	tensors, err := p.MemoryBytes()
	if err != nil {
		return err
	}
	held, err := p.HeldBytes(p.ShadowsApart())
	if err == nil {
		_, err = p.checkLimit(tensors, held)
	}
	if err != nil {
		return err
	}
	for rank := range held {
		stage := p.stageOf(rank)
		if need, what := withShadow(tensors[stage], held[rank]); bytes > 0 && need > bytes {
			return p.cfg.Errorf("model.hidden",
				"%w: a rank of stage %d needs %s of %s, but its device has %s; `engine plan CONFIG --devices N --memory-gib G` proposes "+
					"a grid of N ranks that fit",
				ErrMemory, stage, words.Bytes(need), what, words.Bytes(bytes))
		}
	}
	return nil
}

// withShadow returns the memory of a rank's tensors with that of the shadows that it holds, and a name for both.
func withShadow(tensors, held int64) (bytes int64, what string) {
	if held == 0 {
		return tensors, "tensors"
	}
	return tensors + held, "tensors, with the shadow that it holds (cluster.shadow)"
}

// CheckLimit rejects ranks whose tensors, with the shadows that they hold, need more than device.memory_gib.
func (p *Plan) CheckLimit(s Shadows) error {
	if p.limitBytes() == 0 {
		return nil
	}
	tensors, err := p.MemoryBytes()
	if err != nil {
		return err
	}
	held, err := p.HeldBytes(s)
	if err == nil {
		_, err = p.checkLimit(tensors, held)
	}
	return err
}

// checkLimit rejects ranks whose tensors need more than device.memory_gib. held has by rank the memory of the shadows that it holds; nil:
// none. inPlace is a warning if the tensors fit, but not the copy for a checkpoint.
func (p *Plan) checkLimit(tensors, held []int64) (inPlace string, err error) {
	limit := p.limitBytes()
	if limit == 0 {
		return "", nil
	}
	copies, err := p.CopyBytes()
	if err != nil {
		return "", err
	}
	for r, copied := range copies {
		stage := p.stageOf(r)
		need, what := tensors[stage], "tensors"
		if held != nil {
			need, what = withShadow(need, held[r])
		}
		if need > limit {
			return "", p.cfg.Errorf("device.memory_gib",
				"%w: rank %d (stage %d) needs %s of %s, but the limit is %s; raise it, or let `engine plan CONFIG --devices N` "+
					"propose a grid of N ranks that fit",
				ErrMemory, r, stage, words.Bytes(need), what, words.Bytes(limit))
		}
		if need+copied > limit && inPlace == "" && p.KindOf(r) != device.CUDA {
			inPlace = fmt.Sprintf("rank %d needs %s of %s and %s for the copy of its part of a checkpoint, but "+
				"device.memory_gib allows %s. Checkpoints are written from the tensors themselves, and training waits for them",
				r, words.Bytes(need), what, words.Bytes(copied), words.Bytes(limit))
		}
	}
	return inPlace, nil
}

// CheckpointBytes returns, for each stage, the host memory in bytes of the copy from which a checkpoint is written: its
// weights and their optimizer state.
func (p *Plan) CheckpointBytes() ([]int64, error) {
	weights, states, err := p.savedBytes()
	for r := range weights {
		weights[r] += states[r]
	}
	return weights, err
}

// savedBytes is CheckpointBytes, without and of the optimizer state.
func (p *Plan) savedBytes() (weights, states []int64, err error) {
	weights, states = make([]int64, p.table.NumRanks()), make([]int64, p.table.NumRanks())
	for r := range weights {
		st, err := stages.NewStage(p.model, tensorops.NewDryStream(), p.chunks[r], p.StageOptions(r))
		if err != nil {
			return nil, nil, fmt.Errorf("rank %d: %w", r, err)
		}
		weights[r], states[r] = st.SavedBytes()
		if err := st.Close(); err != nil {
			return nil, nil, fmt.Errorf("rank %d: %w", r, err)
		}
	}
	return weights, states, nil
}

// CopyBytes returns, for each rank of the grid, the bytes of the copy of its part of a checkpoint. One replica has
// the weights. With ZeRO each replica has its part of the optimizer state, and with ZeRO-3 of the weights. Of the experts of an expert
// group, the ranks with the same ones do so.
func (p *Plan) CopyBytes() ([]int64, error) {
	weights, states, err := p.savedBytes()
	if err != nil {
		return nil, err
	}
	ofExperts, stateOfExperts, err := p.expertBytes()
	if err != nil {
		return nil, err
	}
	groups := int64(p.grid.Size(grid.Expert))
	bytes := make([]int64, p.grid.World())
	for r := range bytes {
		at := p.grid.Coordinates(r)
		stage := at[grid.Pipeline]
		n := int64(p.grid.TensorSize(stage))
		replicas, first := p.grid.Size(grid.Copies), at[grid.Data] == 0 && at[grid.Context] == 0
		_, group := p.grid.ExpertPlace(r)
		add := func(all, ofExperts int64, shared bool) { // ofExperts is of this rank's
			others := all/n - groups*ofExperts // of all that is no expert, this rank's
			if p.grid.WholeExperts() {
				others = (all - groups*ofExperts) / n
			}
			bytes[r] += partOf(others, replicas, shared, first) +
				partOf(ofExperts, p.grid.Size(grid.ExpertCopies), shared, group == 0)
		}
		add(weights[stage], ofExperts[stage], p.cfg.SharesWeights())
		add(states[stage], stateOfExperts[stage], p.zero() > 0)
	}
	return bytes, nil
}

// partOf returns the bytes of what a rank writes of what several have: its part if they share it, otherwise the first writes all.
func partOf(bytes int64, ranks int, shared, first bool) int64 {
	switch {
	case shared:
		return bytes / int64(ranks)
	case first:
		return bytes
	}
	return 0
}

// checkpointBytes is the sum of CheckpointBytes.
func (p *Plan) checkpointBytes() (sum int64, err error) {
	ranks, err := p.CheckpointBytes()
	for _, b := range ranks {
		sum += b
	}
	return sum, err
}

// GiB formats a number of bytes in GiB.
func GiB(bytes float64) string { return fmt.Sprintf("%.1f GiB", bytes/(1<<30)) }

// AllOnHost reports whether the tensors of all ranks are in host memory.
func (p *Plan) AllOnHost() bool {
	for r := range p.table.NumRanks() {
		if device.KindOf(p.cfg, r) == device.CUDA {
			return false
		}
	}
	return true
}
