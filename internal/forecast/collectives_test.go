package forecast

import (
	"math"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestCollectiveMS: 1 ms of latency, 1000 bytes in a millisecond.
func TestCollectiveMS(t *testing.T) {
	d := Devices{Devices: 4, LatencyUS: 1000, BytesPerS: 1e6}
	l := tensorops.NewDryStream().NewList()
	tensor := func(n int) tensorops.Tensor { return l.Alloc(tensorops.Float32, n/4) }
	g := tensorops.DryGroup{Members: 4}
	for _, c := range []struct {
		name string
		a    tensorops.CollectiveArgs
		want float64
	}{
		{"a small sum goes whole to all", tensorops.CollectiveArgs{What: tensorops.AllReduce, Src: tensor(4000)}, 1 + 3*4},
		{"a large one by parts, there and back", tensorops.CollectiveArgs{What: tensorops.AllReduce, Src: tensor(400_000)}, 2 + 600},
		{"reduce_scatter", tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Src: tensor(4000)}, 1 + 3},
		{"all_gather", tensorops.CollectiveArgs{What: tensorops.AllGather, Src: tensor(4000)}, 1 + 12},
		{"ring", tensorops.CollectiveArgs{What: tensorops.RingForward, Src: tensor(4000)}, 1 + 4},
		{"barrier", tensorops.CollectiveArgs{What: tensorops.Barrier}, 1},
	} {
		c.a.Group = g
		if ms, underWay, _ := d.collectiveMS(0, grid.Tensor, c.a, 0); math.Abs(ms+underWay-c.want) > 1e-9 {
			t.Errorf("%s: %v and %v ms, want %v", c.name, ms, underWay, c.want)
		}
	}
	if ms, underWay, _ := (Devices{Devices: 1, LatencyUS: 1000}).collectiveMS(0, grid.Tensor,
		tensorops.CollectiveArgs{What: tensorops.Barrier, Group: g}, 0); ms+underWay != 0 {
		t.Errorf("in one device's memory: %v and %v ms", ms, underWay)
	}
	// A nanosecond a byte to add what all bring: all of it where each adds it whole, else a rank's slice of it.
	for _, c := range []struct {
		name string
		a    tensorops.CollectiveArgs
		want float64
	}{
		{"a small sum", tensorops.CollectiveArgs{What: tensorops.AllReduce, Src: tensor(4000)}, 4 * 4e-3},
		{"a large one", tensorops.CollectiveArgs{What: tensorops.AllReduce, Src: tensor(400_000)}, 0.4},
		{"reduce_scatter", tensorops.CollectiveArgs{What: tensorops.ReduceScatter, Src: tensor(400_000)}, 0.4},
		{"nothing is added", tensorops.CollectiveArgs{What: tensorops.AllGather, Src: tensor(400_000)}, 0},
	} {
		c.a.Group = g
		if got, _, _ := (Devices{Devices: 4}).collectiveMS(0, grid.Tensor, c.a, 1); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s takes %v ms to add, want %v", c.name, got, c.want)
		}
	}
	own := Devices{Devices: 2, LatencyUS: 1000, Group: func(stage int, d grid.Dimension) (float64,
		float64) {
		return float64(10*stage) + float64(d), 0
	}}
	if _, got, _ := own.collectiveMS(2, grid.Copies, tensorops.CollectiveArgs{What: tensorops.Barrier, Group: g},
		0); got != 20+float64(grid.Copies) {
		t.Errorf("over links of its own: %v ms", got)
	}
}

// TestPlay: a list computes for 10 ms.
func TestPlay(t *testing.T) {
	begin := func(ms float64) step { return step{ms: ms, dim: grid.Copies, begins: true} }
	carried := func(s step, ms float64) step {
		s.carried = ms
		return s
	}
	under := func(s step, ms float64) step {
		s.underWay = ms
		return s
	}
	whole := step{ms: 3, dim: grid.Tensor}
	half, wait := step{share: 0.5}, step{awaits: true}
	for _, c := range []struct {
		name         string
		steps        []step
		want         float64
		tensor, data float64
	}{
		{"nothing", nil, 10, 0, 0},
		{"in between", []step{half, whole, half}, 13, 3, 0},
		{"beside", []step{begin(4), {share: 1}, wait}, 10, 0, 4},
		{"longer than what is computed", []step{half, begin(7), half, wait}, 12, 0, 7},
		{"one after the other", []step{begin(6), begin(6), {share: 1}}, 12, 0, 12},
		{"a sum waits for the link", []step{half, begin(7), whole, half}, 20, 3, 7},
		{"awaited early", []step{half, begin(7), wait, half}, 17, 0, 7},
		{"the next goes on while one is under way", []step{under(begin(4), 5), under(begin(4), 5), wait, {share: 1}}, 23, 0, 18},
		{"a wait is for what is under way", []step{half, under(whole, 5), half}, 18, 8, 0},
		{"carried by what computes", []step{half, carried(begin(4), 2), half, wait}, 12, 0, 4},
		{"carried while nothing is computed", []step{half, carried(whole, 2), half}, 13, 3, 0},
		{"carried in part while nothing is computed", []step{half, carried(begin(1), 3), wait, half}, 13, 0, 1},
		{"carried at the end", []step{{share: 1}, carried(begin(4), 2)}, 14, 0, 4},
	} {
		got := play(c.steps, 10)
		if math.Abs(got.ms-c.want) > 1e-9 || got.within[grid.Tensor] != c.tensor || got.within[grid.Copies] != c.data {
			t.Errorf("%s: %+v, want %v, %v, %v", c.name, got, c.want, c.tensor, c.data)
		}
	}
}

// TestPredictGrid: what a grid's collectives add is what its messages and bytes take.
func TestPredictGrid(t *testing.T) {
	predict := func(d Devices, sets ...string) *Prediction {
		t.Helper()
		p, err := Predict(resolved(t, append([]string{"batch.microbatch=4", "model.heads=4"}, sets...)...), unitCosts(4), d)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const work = 32 * 8 * 3.0 // 32 sequences, 8 layers, 3 passes
	free := Devices{Devices: 8}
	for _, sets := range [][]string{{"parallel.data=2"}, {"parallel.data=2", "parallel.zero=1"}} {
		if p := predict(free, sets...); math.Abs(p.StepMS-work/2) > 1e-6 || p.TensorMS != 0 || p.DataMS != 0 {
			t.Errorf("%v without links: %+v", sets, p)
		}
	}
	// A tensor group divides products, and norms and residuals only with sequence.
	halves, whole := predict(free, "parallel.tensor=2", "parallel.sequence=true"), predict(free, "parallel.tensor=2")
	if halves.StepMS < work/2*0.99 || halves.StepMS > work/2*1.1 || whole.StepMS < 1.05*halves.StepMS || whole.StepMS > work ||
		halves.TensorMS != 0 || whole.TensorMS != 0 {
		t.Errorf("two ranks of a tensor group take %v ms with sequence, %v ms without, one rank %v ms", halves.StepMS, whole.StepMS, work)
	}
	// A millisecond for each collective of a tensor group: for each of 8 microbatches and 8 layers two sums there and two back,
	// and the few of the embedding and of the loss.
	slow := Devices{Devices: 8, LatencyUS: 1000}
	p := predict(slow, "parallel.tensor=2", "parallel.overlap=false")
	if n := p.TensorMS / 8; n < 32 || n > 32+8 || p.StepMS < whole.StepMS+8*32 {
		t.Errorf("%v ms in collectives of a microbatch, step %v ms", n, p.StepMS)
	}
	// Beside the weights' gradients some of it is not waited for.
	if beside := predict(slow, "parallel.tensor=2"); beside.StepMS >= p.StepMS-8*8*0.9 {
		t.Errorf("with overlap %v ms, without %v", beside.StepMS, p.StepMS)
	}
	// Replicas send their gradients once: as often and as much as they have.
	b := resolved(t, "parallel.data=2", "batch.microbatch=4")
	bytes := 4 * float64(b.Model().Parameters())
	wide := Devices{Devices: 2, BytesPerS: 1e6}
	if p := predict(wide, "parallel.data=2"); math.Abs(p.DataMS-1e3*bytes/1e6) > 0.01*p.DataMS || p.StepMS > work/2+p.DataMS+1e-6 {
		t.Errorf("%v ms in collectives of replicas that send %v bytes, step %v ms", p.DataMS, bytes, p.StepMS)
	}
	// A rank that carries what it sends and receives computes so much later: of a pipeline an output and a gradient of each
	// microbatch, and of replicas what goes on beside what they compute.
	carry := Devices{Devices: 2, CarryNS: func(int) float64 { return 1 }}
	two := resolved(t, "pipeline.stages=2", "pipeline.schedule=1f1b", "batch.microbatch=4")
	eachMS, n := float64(two.EdgeBytes())/1e6, float64(two.Table().Microbatches)
	if more := predict(carry, "pipeline.stages=2", "pipeline.schedule=1f1b").StepMS - predict(free, "pipeline.stages=2",
		"pipeline.schedule=1f1b").StepMS; more < 2*n*eachMS*0.999 || more > 2*(n+1)*eachMS*1.001 {
		t.Errorf("carrying %v outputs and as many gradients of %v ms takes %v ms", n, eachMS, more)
	}
	if more := predict(carry, "parallel.data=2").StepMS - work/2; more <= 0 || more > 2*bytes/1e6 {
		t.Errorf("carrying %v bytes in and out takes %v ms", bytes, more)
	}
	// On one device all ranks share it.
	if p := predict(Devices{Devices: 1}, "parallel.tensor=2", "parallel.data=2"); p.StepMS < work/2 || p.TensorMS != 0 ||
		len(p.PeakInFlight) != 1 {
		t.Errorf("on one device: %+v", p)
	}
	// One rank on a device whose costs were measured there.
	own := Devices{Devices: 1, Costs: func(int) *Costs { return unitCosts(4) }}
	if p, err := Predict(resolved(t), nil, own); err != nil || math.Abs(p.StepMS-work) > 1e-6 {
		t.Errorf("on a device with its own costs: %+v, %v", p, err)
	}
	if _, err := Predict(resolved(t, "parallel.tensor=2", "parallel.data=2"), unitCosts(4), Devices{Devices: 3}); err == nil {
		t.Error("4 ranks on 3 devices")
	}
}

// TestRecord: every kind of action of a table is recorded, with its tensor group's collectives, and the last
// microbatch's with those of the replicas.
func TestRecord(t *testing.T) {
	for _, sets := range [][]string{
		{"pipeline.stages=2", "pipeline.schedule=zb-h1", "pipeline.recompute=partial", "pipeline.recompute_keep=1"},
		{"pipeline.stages=2", "pipeline.chunks=2", "pipeline.schedule=zb-v"},
		{"pipeline.stages=2", "pipeline.schedule=1f1b", "parallel.zero=1", "parallel.sequence=true", "model.mtp_layers=1"},
		{"pipeline.stages=2", "pipeline.schedule=1f1b", "parallel.tensor=[2, 4]"},
		{"pipeline.stages=2", "pipeline.schedule=1f1b", "model.layers=16", "pipeline.schedule=1f1b", "parallel.zero=3"},
	} {
		b := resolved(t, append([]string{"parallel.tensor=2", "parallel.data=2"}, append(sets, "model.hidden=128", "model.heads=4")...)...)
		for stage, row := range b.Table().Ranks {
			seen := make(map[chunkPass][]tensorops.Op)
			ended := false
			err := b.Record(stage, func(chunk int, pass plan.Pass, ops []tensorops.Op) {
				seen[chunkPass{chunk, pass}] = slices.Clone(ops)
			}, func(norms, update []tensorops.Op) { ended = len(norms) > 0 && len(update) > 0 })
			if err != nil || !ended {
				t.Fatalf("%v: %v, the end: %v", sets, err, ended)
			}
			passOf, replicas := b.PassOf(stage), 0
			for _, a := range row {
				pass := passOf(a)
				ops, ok := seen[chunkPass{int(a.Chunk), pass}]
				if !ok {
					t.Fatalf("%v: %v of stage %d is not recorded: %+v", sets, a, stage, pass)
				}
				if a.Type == scheduler.F && len(stepsOnly(ops, grid.Tensor)) == 0 {
					t.Errorf("%v: %v of stage %d has no collectives", sets, a, stage)
				}
				if n := len(stepsOnly(ops, grid.Copies)); n > 0 && !pass.Last && b.Config().Parallel.Zero < 3 {
					t.Errorf("%v: %v of stage %d, which is not the last, has %d collectives of the replicas", sets, a, stage, n)
				} else {
					replicas += n
				}
			}
			if replicas == 0 {
				t.Errorf("%v: no gradients of stage %d are added beside the last backward", sets, stage)
			}
		}
	}
}

// stepsOnly are the collectives along a dimension.
func stepsOnly(ops []tensorops.Op, dim grid.Dimension) (some []step) {
	for _, s := range (Devices{Devices: 2, LatencyUS: 1}).stepsOf(0, ops, 0, 1) {
		if s.ms+s.underWay > 0 && s.dim == dim {
			some = append(some, s)
		}
	}
	return some
}

// TestSlowestOf against all combinations.
func TestSlowestOf(t *testing.T) {
	times := []float64{3, 1, 4, 1, 5}
	var one, two, three float64
	for _, a := range times {
		one += a
		for _, b := range times {
			two += max(a, b)
			for _, c := range times {
				three += max(a, b, c)
			}
		}
	}
	for n, want := range map[int]float64{1: one / 5, 2: two / 25, 3: three / 125} {
		if got := slowestOf(n, times); math.Abs(got-want) > 1e-12 {
			t.Errorf("of %d: %v, want %v", n, got, want)
		}
	}
	if got := slowestOf(2, nil); got != 0 {
		t.Errorf("of no times: %v", got)
	}
}
