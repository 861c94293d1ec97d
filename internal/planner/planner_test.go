package planner

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/bench"
	"github.com/troupe-ml/troupe/internal/device"
	"github.com/troupe-ml/troupe/internal/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny loads a small model with some keys set.
func tiny(sets ...string) bench.Load {
	return func(more []string) (*config.Config, error) {
		return bench.ModelConfig("gpt", slices.Concat([]string{"model.layers=8", "model.hidden=16", "model.heads=4", "model.context=8",
			"model.vocab=40", "batch.sequences=32", "batch.microbatch=4", "device.threads=2"}, sets, more))
	}
}

func resolved(t testing.TB, sets ...string) *plan.Plan {
	t.Helper()
	cfg, err := tiny(sets...)(bench.SizesOnly)
	if err != nil {
		t.Fatal(err)
	}
	b, err := plan.Resolve(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unitCosts are those of a layer whose passes take a millisecond for each sequence; the
// embedding and the head take no time.
func unitCosts(microbatches ...int) *Costs {
	c := &Costs{Kernels: "go", DType: "float32", Threads: 2, Context: 8, Hidden: 16, Shares: []float64{1, 0.75}}
	for _, n := range microbatches {
		x := float64(n)
		c.Batches = append(c.Batches, BatchCosts{n, map[string]LayerCost{"E": {}, "t": {x, x, x, 2 * x}, "L": {}}})
	}
	return c
}

func TestPredict(t *testing.T) {
	const f, m, p = 4 * 2, 8.0, 4.0 // ms of a stage's forward: 2 layers, 4 sequences
	for _, c := range []struct {
		name    string
		sets    []string
		cluster Devices
		want    float64 // makespan, ms
	}{
		{"one stage", nil, Devices{Devices: 1}, 3 * m * 8 * 4},
		{"own devices", []string{"pipeline.stages=4", "pipeline.layout=Ett|tt|tt|ttL"}, Devices{Devices: 4}, 3 * f * (m + p - 1)},
		{"a message", []string{"pipeline.stages=4", "pipeline.schedule=gpipe", "batch.sequences=4", "pipeline.layout=Ett|tt|tt|ttL"},
			Devices{Devices: 4, LatencyUS: 500, BytesPerS: 4 * 4 * 8 * 16 * 1000}, 3*f*p + 2*(p-1)*1.5},
		{"all recomputed", []string{"pipeline.stages=4", "pipeline.recompute=full", "pipeline.layout=Ett|tt|tt|ttL"}, Devices{Devices: 4}, 4 * f * (m + p - 1)},
		// Two at a time run at 3/4 of their speed: without a bubble, two thirds of the time.
		{"shared", []string{"pipeline.stages=2", "batch.sequences=4", "pipeline.layout=Et*4|t*4,L"}, Devices{Devices: 1}, 3 * 8 * 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := resolved(t, c.sets...)
			costs := unitCosts(4)
			costs.UpdateNS = 1000
			got, err := Predict(b, costs, c.cluster)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got.MakespanMS-c.want) > 1e-9*c.want {
				t.Errorf("makespan %v ms, want %v", got.MakespanMS, c.want)
			}
			weights := b.Parameters()
			var update int64
			for _, n := range weights {
				update += n
			}
			if c.cluster.Devices > 1 {
				update = slices.Max(weights)
			}
			if want := float64(update) / 1000; math.Abs(got.UpdateMS-want) > 1e-9*want || got.StepMS != got.MakespanMS+got.UpdateMS {
				t.Errorf("update %v ms of %v, want %v", got.UpdateMS, got.StepMS, want)
			}
		})
	}
	if _, err := Predict(resolved(t, "pipeline.stages=4"), unitCosts(4), Devices{Devices: 2}); !errors.Is(err, ErrDevices) {
		t.Errorf("four ranks on two devices: %v", err)
	}
	if _, err := Predict(resolved(t), unitCosts(2), Devices{}); !errors.Is(err, ErrCosts) || !strings.Contains(err.Error(), "microbatches of 4") {
		t.Errorf("without costs of the microbatch: %v", err)
	}
	if _, err := Predict(resolved(t, "model.mtp_layers=2"), unitCosts(4), Devices{}); !errors.Is(err, ErrCosts) || !strings.Contains(err.Error(), "the layer m is missing, of which the model has 2") {
		t.Errorf("without costs of multi-token prediction: %v", err)
	}
	if _, err := Predict(resolved(t, "model.hidden=32"), unitCosts(4), Devices{}); !errors.Is(err, ErrCosts) || !strings.Contains(err.Error(), "hidden 16, the configuration has 8 and 32") {
		t.Errorf("with another model's costs: %v", err)
	}
}

// TestOneKind: costs are those of one device, so that a pipeline over several kinds is
// refused; one that names the same kind for each rank is not.
func TestOneKind(t *testing.T) {
	b := resolved(t, "pipeline.stages=2", `device.ranks=["cpu", "cuda"]`)
	_, measured := Measure(t.Context(), b, []int{4}, 0, nil)
	_, predicted := Predict(b, unitCosts(4), Devices{Devices: 2})
	_, configured := Configured(b, unitCosts(4), Devices{Devices: 2})
	_, proposed := Propose(t.Context(), b, unitCosts(4), Devices{Devices: 2})
	for name, err := range map[string]error{"Measure": measured, "Predict": predicted, "Configured": configured, "Propose": proposed} {
		if err == nil || !strings.Contains(err.Error(), "device.ranks: ranks 0 and 1 compute on cpu and cuda") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	p, err := Propose(t.Context(), resolved(t, "pipeline.stages=2", `device.ranks=["cpu", "auto"]`), unitCosts(4), Devices{Devices: 4})
	if err != nil || p.Best == nil || p.Best.Stages != 4 {
		t.Errorf("one kind for both ranks: %+v, %v", p, err)
	}
}

// Where a message takes no time and memory is no bound, nothing beats a schedule without
// a bubble; where it is one, what fits is proposed, and recomputation only if nothing
// else does.
func TestPropose(t *testing.T) {
	b := resolved(t)
	free, err := Propose(t.Context(), b, unitCosts(2, 4), Devices{Devices: 4})
	if err != nil {
		t.Fatal(err)
	}
	// 32 sequences by 2: 16 microbatches. Of the two sizes the smaller has the smaller
	// bubble. A rank's work is 3 passes of 2 layers of 32 sequences.
	const work = 3 * 2 * 32
	if o := free.Best; o == nil || o.Stages != 4 || o.Microbatch != 2 || o.MakespanMS < work || o.MakespanMS > 1.06*work || o.Recompute != "none" {
		t.Fatalf("best: %+v", free.Best)
	}
	for _, list := range [][]*Option{free.ByStages, free.BySchedule, free.ByMicrobatch} {
		if !slices.IsSortedFunc(list, faster) || len(list) < 2 {
			t.Errorf("not sorted, or too short: %d", len(list))
		}
		for _, o := range list {
			if o.StepMS < free.Best.StepMS/equalTime || !o.Fits {
				t.Errorf("%s with %d stages: %v ms, the best takes %v", o.Schedule, o.Stages, o.StepMS, free.Best.StepMS)
			}
		}
	}
	if len(free.TooLarge) > 0 || free.Tried < 50 {
		t.Errorf("%d are too large of %d", len(free.TooLarge), free.Tried)
	}

	// As little memory as the leanest needs, and a byte less.
	least := int64(math.MaxInt64)
	for _, o := range free.BySchedule {
		least = min(least, o.NeedBytes())
	}
	tight, err := Propose(t.Context(), b, unitCosts(2, 4), Devices{Devices: 4, MemoryBytes: least})
	if err != nil {
		t.Fatal(err)
	}
	if tight.Best == nil || tight.Best.NeedBytes() > least || len(tight.TooLarge) == 0 {
		t.Fatalf("with %d bytes: %+v, too large %d", least, tight.Best, len(tight.TooLarge))
	}
	for _, o := range tight.TooLarge {
		if o.NeedBytes() <= least || o.StepMS >= tight.Best.StepMS {
			t.Errorf("too large: %s needs %d of %d bytes and takes %v ms", o.Schedule, o.NeedBytes(), least, o.StepMS)
		}
	}
	none, err := Propose(t.Context(), b, unitCosts(2, 4), Devices{Devices: 4, MemoryBytes: 1})
	if err != nil || none.Best != nil || len(none.TooLarge) == 0 {
		t.Errorf("in one byte: %+v, %v", none, err)
	}
}

// Recomputation is proposed where nothing fits without, and no more of it than needed.
func TestProposeRecompute(t *testing.T) {
	b := resolved(t, "model.context=64", "batch.sequences=8", "batch.microbatch=1")
	costs := unitCosts(1)
	costs.Context = 64
	free, err := Propose(t.Context(), b, costs, Devices{Devices: 2})
	if err != nil {
		t.Fatal(err)
	}
	leanest := slices.MinFunc(slices.Concat(free.BySchedule, free.ByStages, free.ByMicrobatch), func(a, b *Option) int { return cmp.Compare(a.NeedBytes(), b.NeedBytes()) })
	for share, wants := range map[float64]string{0.98: "partial", 0.8: "full"} {
		tight, err := Propose(t.Context(), b, costs, Devices{Devices: 2, MemoryBytes: int64(share * float64(leanest.NeedBytes()))})
		if err != nil {
			t.Fatal(err)
		}
		if o := tight.Best; o == nil || !o.Fits || o.Recompute != wants {
			t.Errorf("with %v of %d bytes: %+v, want recompute %s", share, leanest.NeedBytes(), o, wants)
		}
	}
}

func TestMicrobatches(t *testing.T) {
	for _, c := range []struct {
		sequences, configured int
		want                  []int
	}{
		{16, 4, []int{1, 2, 4, 8, 16}},
		{12, 4, []int{1, 2, 4}},
		{12, 3, []int{1, 3, 6, 12}},
		{7, 7, []int{1, 7}},
		{1, 1, []int{1}},
		{15, 5, []int{1, 3, 5}},
	} {
		if got := Microbatches(c.sequences, c.configured); !slices.Equal(got, c.want) {
			t.Errorf("of %d sequences by %d: %v, want %v", c.sequences, c.configured, got, c.want)
		}
	}
}

func TestShares(t *testing.T) {
	if got := doubling(6); !slices.Equal(got, []int{1, 2, 4, 6}) {
		t.Errorf("doubling to 6: %v", got)
	}
	// Lists that take 10 alone, 12 by twos, 20 by fours.
	got := sharesOf([]int{1, 2, 4}, func(n int) float64 { return map[int]float64{1: 10, 2: 12, 4: 20}[n] })
	all3 := (2/1.2 + 2) / 2
	for i, want := range []float64{1, 1 / 1.2, all3 / 3, 0.5} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("%d at a time: %v, want %v", i+1, got[i], want)
		}
	}
	c := Costs{Shares: got}
	if c.Share(1) != 1 || c.Share(8) != 0.25 {
		t.Errorf("alone %v, eight %v", c.Share(1), c.Share(8))
	}
}

// What is measured is sound, can be written and read, and predicts.
func TestMeasure(t *testing.T) {
	for _, sets := range [][]string{nil, {"model.mtp_layers=2"}, {"model.family=llama", "device.dtype=bfloat16"}} {
		b := resolved(t, sets...)
		var told []string
		c, err := Measure(t.Context(), b, []int{1, 4}, 1e-9, func(s string) { told = append(told, s) })
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadCosts(text)
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%s reads as %+v, %v", text, again, err)
		}
		if len(c.Batches) != 2 || len(c.Shares) != 2 || c.UpdateNS <= 0 || len(told) != 3 {
			t.Errorf("%s, told %q", text, told)
		}
		if o, err := Configured(b, c, Devices{Devices: 1}); err != nil || !(o.StepMS > 0) || !o.Fits || o.NeedBytes() == 0 {
			t.Errorf("%+v, %v", o, err)
		}
	}
}

// What was measured with is given back, before the next is measured.
func TestMeasuringGivesBack(t *testing.T) {
	b := resolved(t)
	dev, err := device.Open(b.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	left := func(after string) {
		t.Helper()
		if m := dev.Memory(); m.InUse != 0 || m.Pooled != 0 || m.Peak == 0 {
			t.Errorf("after %s: %+v", after, m)
		}
	}
	m, err := newMeter(b, dev, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.sample(t.Context(), 1e-9); err != nil {
		t.Error(err)
	}
	m.close()
	left("layers")
	if _, err := measureShares(t.Context(), b, dev, 1); err != nil {
		t.Error(err)
	}
	left("shares")
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP"} {
		t.Setenv(name, dir)
	}
	v, err := Check(t.Context(), tiny("pipeline.stages=2"), 2, 1e-9, func(string) {})
	if err != nil || v.Pairs != 2 || !(v.StepRatio > 0) || !(v.MeasuredStepMS > 0) || v.PredictedBytes == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// FuzzReadCosts: whatever is read can be predicted by.
func FuzzReadCosts(f *testing.F) {
	text, err := json.Marshal(unitCosts(1, 4))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), "", "{}", "[]", strings.Replace(string(text), "0.75", "-1", 1), strings.Replace(string(text), `"t"`, `"x"`, 1),
		strings.Replace(string(text), "0.75", "1e999", 1)} {
		f.Add(seed)
	}
	b := resolved(f, "pipeline.stages=2")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ReadCosts([]byte(text))
		if err != nil {
			if !errors.Is(err, ErrCosts) {
				t.Errorf("%v", err)
			}
			return
		}
		for n := 1; n < 5; n++ {
			if !(c.Share(n) > 0) {
				t.Errorf("share of %d: %v", n, c.Share(n))
			}
		}
		if _, err := Predict(b, c, Devices{Devices: 1}); err != nil && !errors.Is(err, ErrCosts) {
			t.Errorf("%v", err)
		}
	})
}
