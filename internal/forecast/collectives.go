package forecast

import (
	"fmt"
	"math"
	"sync"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// wholeBytes is the largest all_reduce, in bytes that each rank sends, that is sent as a whole to all ranks, with
// one latency instead of two (package collective).
const wholeBytes = 256 << 10

// collectiveMS is how long a collective of a stage's group along a dimension takes the link, where all begin at once and a
// processor adds a byte of a contribution in addNS, and for how long it is under way beside that, in which the link
// is there for the next; carried is how much less the rank computes if it does so meanwhile.
func (c Devices) collectiveMS(stage int, dim grid.Dimension, a tensorops.CollectiveArgs, addNS float64) (ms, underWayMS, carried float64) {
	latencyMS, bytesPerS := c.LatencyUS/1e3, c.BytesPerS
	if c.Group != nil {
		latencyMS, bytesPerS = c.Group(stage, dim)
	}
	if c.Devices <= 1 { // all in the memory of one
		return 0, 0, 0
	}
	n := float64(a.Group.Size())
	latencies, bytes, added := 1.0, 0.0, 0.0
	if a.What != tensorops.Barrier {
		bytes = float64(a.Src.Len() * a.Src.DType().Size())
	}
	switch a.What {
	case tensorops.AllReduce:
		if bytes*(n-1) <= wholeBytes {
			added, bytes = bytes*n, bytes*(n-1)
		} else { // each adds a slice of all
			latencies, added, bytes = 2, bytes, 2*bytes*(n-1)/n
		}
	case tensorops.ReduceScatter:
		added, bytes = bytes, bytes*(n-1)/n
	case tensorops.AllToAll:
		bytes *= (n - 1) / n
	case tensorops.AllToAllV: // as many rows as at the source, which has no more than it sends; the busiest rank sends or gets more
		bytes = float64(min(a.Src.Len(), a.Dst.Len())*a.Src.DType().Size()) * (n - 1) / n * c.excess(a.Group.Size())
	case tensorops.AllGather:
		bytes *= n - 1
	}
	ms = added * addNS / 1e6
	if bytesPerS > 0 {
		ms += 1e3 * bytes / bytesPerS
	}
	if carried = c.carryMS(stage, 2*bytes); carried > 0 { // as many come in as go out
		carried += added * addNS / 1e6
	}
	return ms, latencies * latencyMS, carried
}

// step is an operation of a list, in the order of its stream: a computation, a collective, or a wait for
// the started collectives, or for one of them.
type step struct {
	share    float64 // of the list's computing
	ms       float64 // a collective: of the link
	underWay float64 // ms beside that
	carried  float64 // ms of computing that it takes where others go on meanwhile
	dim      grid.Dimension
	begins   bool // others go on meanwhile
	awaits   bool
	number   int    // of a collective that begins: see tensorops.List.Begin; of a wait: the collective, 0: all
	back     bool   // brings tokens back from their experts
	weight   uint64 // gathered with ZeRO-3: the address of this rank's part; else 0
}

// stepsOf returns the steps of a list of operations. rows is the share of the rows for which experts have room that they compute. With
// Devices.ExpertImbalance, the steps' shares of the list's computing add up to more than 1.
func (c Devices) stepsOf(stage int, ops []tensorops.Op, addNS, rows float64) (steps []step) {
	var all, open float64 // work: of all, and since the last step
	begun := 0
	flush := func() {
		if open > 0 {
			steps = append(steps, step{share: open})
		}
		open = 0
	}
	for i := range ops {
		o := &ops[i]
		switch o.Kind {
		case tensorops.KindCollective:
			a := o.Collective()
			if a.Later {
				begun++
			}
			dim, ok := plan.DimensionOf(a.Group)
			if !ok || a.Group.Size() <= 1 {
				continue
			}
			flush()
			s := step{dim: dim, begins: a.Later, number: begun, back: a.Back}
			s.ms, s.underWay, s.carried = c.collectiveMS(stage, dim, a, addNS)
			if a.What == tensorops.AllGather && a.Later && (dim == grid.Copies || dim == grid.ExpertCopies) {
				s.weight = a.Src.Buffer().Addr + uint64(a.Src.Offset()*a.Src.DType().Size())
			}
			steps = append(steps, s)
		case tensorops.KindAwait:
			flush()
			steps = append(steps, step{awaits: true, number: o.Await().Number})
		default:
			w := work(o, rows)
			all += w
			if _, ranks := expertWork(o, rows); ranks > 1 {
				w *= c.excess(ranks)
			}
			open += w
		}
	}
	flush()
	for i := range steps {
		if all > 0 {
			steps[i].share /= all
		}
	}
	return steps
}

// work is the relative cost of an operation in its list: its multiplications and additions, or for each
// number that it moves as many as fit in that time. rows is the share of the rows that experts compute: see expertWork.
func work(o *tensorops.Op, rows float64) float64 {
	const moved = 16
	t := func(i int) float64 {
		if !o.T[i].Valid() {
			return 0
		}
		return float64(o.T[i].Len())
	}
	switch o.Kind {
	case tensorops.KindMatMul:
		return flopsOf(o)
	case tensorops.KindGroupedMatMul, tensorops.KindGroupedWeightGrad:
		products, _ := expertWork(o, rows)
		return products
	case tensorops.KindAttention, tensorops.KindAttentionGrad:
		each := 2.0
		if o.Kind == tensorops.KindAttentionGrad {
			each = 5
		}
		keys := o.Attention().Keys
		if o.Kind == tensorops.KindAttentionGrad {
			keys = o.AttentionGrad().Keys
		}
		return each * t(0) * float64(keys)
	}
	return moved * t(0)
}

// byDimension are times by the dimension of the group.
type byDimension [grid.NumDimensions]float64

// taken is the time of a list.
type taken struct {
	ms     float64 // from its start to its end
	within byDimension
}

// play plays steps of which all computing takes so long: one stream computes, and what it begins goes over one
// link, one collective after the other, of which the next begins while one is still under way. Where the processors
// that compute carry it too, they compute so much later, unless they wait for it.
func play(steps []step, computeMS float64) taken {
	return playWith(steps, computeMS, func(int, float64, float64) {})
}

// playWith is play. After each step it calls note with the stream's time and, for a collective, with the time at which all of
// it has arrived.
func playWith(steps []step, computeMS float64, note func(i int, now, arrived float64)) (t taken) {
	now, link, there, carry := 0.0, 0.0, 0.0, 0.0 // there: all that was begun; carry is still to be done
	var ends map[int]float64                      // by number, of what goes on
	wait := func(until float64) {
		idle := max(until-now, 0)
		now, carry = now+idle, max(carry-idle, 0)
	}
	for i, s := range steps {
		switch {
		case s.awaits && s.number > 0:
			wait(ends[s.number])
		case s.awaits:
			wait(there)
		case s.share > 0:
			now += s.share*computeMS + carry
			carry = 0
		default:
			link = max(link, now) + s.ms
			there = max(there, link+s.underWay)
			t.within[s.dim] += s.ms + s.underWay
			if carry += s.carried; s.begins {
				if ends == nil {
					ends = make(map[int]float64)
				}
				ends[s.number] = link + s.underWay
			} else {
				wait(there)
			}
		}
		note(i, now, link+s.underWay)
	}
	if len(steps) == 0 {
		now = computeMS
	}
	t.ms = max(now, there)
	return t
}

// grouped are the lists of a stage whose ranks are in groups.
type grouped struct {
	passOf        func(scheduler.Action) plan.Pass
	passes        map[chunkPass][]step
	shares        map[chunkPass]float64 // of what the whole layers take, on each rank
	norms, update []step
}

type chunkPass struct {
	chunk int
	pass  plan.Pass
}

// recordGroups records the collectives of the ranks of each stage; nil: none. costs are those of each stage's device.
func recordGroups(b *plan.Plan, cluster Devices, costs []*Costs) ([]grouped, error) {
	if !b.Grouped() {
		return nil, nil
	}
	whole := sync.OnceValues(func() (*plan.Plan, error) { return undivided(b) }) // for all stages, if one needs it
	all := make([]grouped, b.Table().NumRanks())
	known := cluster.recorded
	if known == nil {
		known = make(recordings)
	}
	of := recordOf(b)
	for stage := range all {
		kind := of + b.RecordKind(stage) + cluster.groupKind(stage, costs[stage])
		if r, seen := known[kind]; seen {
			all[stage] = r.of(b, r.chunks, stage)
			continue
		}
		g := grouped{passOf: b.PassOf(stage), passes: make(map[chunkPass][]step), shares: make(map[chunkPass]float64)}
		addNS, rows := costs[stage].AddNS, expertRows(b)
		err := b.Record(stage, func(chunk int, pass plan.Pass, ops []tensorops.Op) {
			g.passes[chunkPass{chunk, pass}] = cluster.stepsOf(stage, ops, addNS, rows)
			g.shares[chunkPass{chunk, pass}] = workOf(ops, rows)
		}, func(norms, update []tensorops.Op) {
			g.norms, g.update = cluster.stepsOf(stage, norms, addNS, rows), cluster.stepsOf(stage, update, addNS, rows)
		})
		if err == nil {
			err = g.divide(b, stage, costs[stage], whole)
		}
		if err != nil {
			return nil, err
		}
		all[stage] = g
		known[kind] = recording{g, b.Chunks(stage)}
	}
	return all, nil
}

// recordings are the recorded stages by their kind: the plans of a search have many equal stages.
type recordings map[string]recording

type recording struct {
	grouped
	chunks []stages.ChunkSpec // of the stage that was recorded
}

// recordOf is equal for plans of one model whose stages of one kind record the same.
func recordOf(b *plan.Plan) string {
	c := b.Config()
	return fmt.Sprintf("%d %d %v %v %v %v %v %d %v %v ", c.Batch.Microbatch, c.Parallel.Expert, b.Grid().WholeExperts(),
		c.Parallel.ExpertOverlap, b.Grid(), c.Parallel.Sequence, b.DescribeZero(), b.Table().Microbatches, b.EmbeddingRanks(),
		c.Pipeline.PostValidation)
}

// groupKind is equal for stages on which the same collectives take the same time.
func (c Devices) groupKind(stage int, costs *Costs) string {
	kind := fmt.Sprintf(" %v %v", costs.AddNS, c.carryMS(stage, 1))
	for _, d := range []grid.Dimension{grid.Tensor, grid.Context, grid.Copies, grid.Expert, grid.ExpertCopies} {
		if c.Group != nil {
			latencyMS, bytesPerS := c.Group(stage, d)
			kind += fmt.Sprintf(" %v %v", latencyMS, bytesPerS)
		}
	}
	return kind
}

// of returns the lists of another stage of the same kind.
func (g grouped) of(b *plan.Plan, chunks []stages.ChunkSpec, other int) grouped {
	chunk := make(map[int]int)
	for i, c := range chunks {
		chunk[c.Chunk] = b.Chunks(other)[i].Chunk
	}
	own := grouped{passOf: b.PassOf(other), norms: g.norms, update: g.update, passes: make(map[chunkPass][]step),
		shares: make(map[chunkPass]float64)}
	for key, steps := range g.passes {
		own.passes[chunkPass{chunk[key.chunk], key.pass}] = steps
	}
	for key, share := range g.shares {
		own.shares[chunkPass{chunk[key.chunk], key.pass}] = share
	}
	return own
}

// divide makes the shares those of what costs are of: of the same parts, or of whole layers, by their operations.
func (g *grouped) divide(b *plan.Plan, stage int, costs *Costs, undivided func() (*plan.Plan, error)) error {
	if err := costs.fitsGroups(b, stage); err != nil {
		return err
	}
	of := make(map[chunkPass]float64)
	if !costs.divided() {
		whole, err := undivided()
		if err != nil {
			return err
		}
		if err := whole.Record(stage, func(chunk int, pass plan.Pass, ops []tensorops.Op) {
			of[chunkPass{chunk, pass}] = workOf(ops, 1)
		}, func(_, _ []tensorops.Op) {}); err != nil {
			return err
		}
	}
	for key, w := range g.shares {
		if g.shares[key] = 1; of[key] > 0 {
			g.shares[key] = w / of[key]
		}
	}
	return nil
}

// undivided is a plan whose layers are whole on each rank, beside which those of a plan are seen to be divided: a
// tensor group divides products and heads, and norms only where sequence is set. Ranks that share experts compute as much as others, but
// gates and copies over all rows for which they have room.
func undivided(b *plan.Plan) (*plan.Plan, error) {
	g := b.Grid()
	if g.Size(grid.Context)*g.Size(grid.Expert) == 1 && g.World() == g.Size(grid.Data)*b.Table().NumRanks() {
		return b, nil
	}
	cfg := *b.Config()
	cfg.Parallel.Tensor, cfg.Parallel.Context, cfg.Parallel.Sequence = []int{1}, 1, false
	cfg.Parallel.Expert, cfg.Parallel.ExpertTensor, cfg.Parallel.ExpertOverlap = 1, 0, false
	cfg.Parallel.Edges, cfg.Parallel.World = "auto", 0
	cfg.Pipeline.Layout = b.Layout().String() // which costs may have decided
	var table []byte
	if text := b.TableText(); len(text) > 0 {
		table = text
	}
	whole, err := plan.NewOf(&cfg, b.Model().Config, table)
	if err != nil {
		return nil, fmt.Errorf("plan the layers without groups, as one rank would hold them: %w", err)
	}
	return whole, nil
}

// workOf is the sum of the work of a list: see work.
func workOf(ops []tensorops.Op, rows float64) (all float64) {
	for i := range ops {
		if k := ops[i].Kind; k != tensorops.KindCollective && k != tensorops.KindAwait {
			all += work(&ops[i], rows)
		}
	}
	return all
}

// inGroups are the costs of a rank's actions where those of the whole layers are known: the ranks of a tensor group
// share them, and wait for each other. within adds up how long the collectives of each dimension take.
// paired are the actions of overlapped pairs in which one computes while the tokens of the other travel; nil: there are none.
func inGroups(b *plan.Plan, all []grouped, whole scheduler.Costs) (costs scheduler.Costs, within []byDimension, paired []pairedActions) {
	type known struct {
		stage int
		chunkPass
	}
	memo := make(map[known]taken)
	computeMS := func(stage int, a scheduler.Action) float64 {
		return whole(stage, a) * all[stage].shares[chunkPass{int(a.Chunk), all[stage].passOf(a)}]
	}
	of := func(stage int, a scheduler.Action) taken {
		g := all[stage]
		key := known{stage, chunkPass{int(a.Chunk), g.passOf(a)}}
		t, ok := memo[key]
		if !ok {
			t = play(g.passes[key.chunkPass], computeMS(stage, a))
			memo[key] = t
		}
		return t
	}
	alone := func(stage int, a scheduler.Action) float64 { return of(stage, a).ms }
	if b.Config().Parallel.ExpertOverlap {
		paired = playPairs(b, all, computeMS, alone)
	}
	within = make([]byDimension, len(all))
	for stage, row := range b.Table().Ranks {
		for _, a := range row {
			t := of(stage, a).within
			if a.Overlap = false; paired != nil {
				if p, there := paired[stage][a]; there && p.side == 0 {
					t = p.pair.within // of both
				} else if there {
					continue
				}
			}
			for d := range t {
				within[stage][d] += t[d]
			}
		}
	}
	if paired == nil {
		return alone, within, nil
	}
	return func(stage int, a scheduler.Action) float64 {
		a.Overlap = false
		if p, there := paired[stage][a]; there {
			return p.ms
		}
		return of(stage, a).ms
	}, within, paired
}

// normShare is how much of what norms and update of a weight take is the norm: it reads one of
// the eight numbers that are read and written.
const normShare = 1.0 / 8

// endMS is what norms and the update take on a rank of a stage with that many trained weights, all of which its ranks have together, and
// adds its collectives.
func (g grouped) endMS(b *plan.Plan, stage int, weights int64, costs *Costs, within *byDimension) float64 {
	tensor, copies, sharing := float64(b.Grid().TensorSize(stage)), float64(b.Grid().Size(grid.Copies)), float64(b.Grid().Size(grid.Expert))
	updateMS := costs.UpdateNS * float64(weights) / 1e6
	norms := updateMS * normShare / (tensor * copies)
	update := updateMS * (1 - normShare) / tensor
	if b.Grid().HasExpertGroups() {
		experts, parts := b.TrainedExperts(stage), tensor // parts of each expert
		if b.Grid().WholeExperts() {
			parts = 1
		}
		// A rank adds the gradients of its experts, which are there for each rank of its group, and updates only its experts.
		norms += 4 * experts / parts * costs.AddNS / 1e6
		update = costs.UpdateNS / 1e6 * (1 - normShare) * ((float64(weights)-experts)/tensor + experts/(parts*sharing))
	}
	if b.Config().Parallel.Zero > 0 {
		update = updateMS * (1 - normShare) / (tensor * copies)
	}
	first, then := play(g.norms, norms), play(g.update, update)
	for d := range within {
		within[d] += first.within[d] + then.within[d]
	}
	return first.ms + then.ms
}

// finite rejects a time that is negative or not finite.
func finite(what string, ms float64) error {
	if !(ms >= 0) || math.IsInf(ms, 1) {
		return fmt.Errorf("%w: %s would take %v ms; check the latency and the bandwidth", ErrDevices, what, ms)
	}
	return nil
}
