package forecast

import (
	"cmp"
	"context"
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
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/host/gpus"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
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
	return planOf(t, cfg, err)
}

// planOf is the plan of a configuration that was loaded.
func planOf(t testing.TB, cfg *config.Config, err error) *plan.Plan {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	b, err := plan.Resolve(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// sampled opens a device for a plan until the end of the test, and returns the part of its model that is measured there.
func sampled(t *testing.T, b *plan.Plan) (device.Device, *sample) {
	t.Helper()
	dev, err := device.Open(b.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	of, err := sampleOf(b, b.StageOptions(0), dev, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	return dev, of
}

// slowLinks make what pipelines send cheap beside what tensor groups and replicas send.
func slowLinks(devices int, memoryBytes int64) Devices {
	return Devices{Devices: devices, MemoryBytes: memoryBytes, BytesPerS: 2e6}
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
		{"all recomputed", []string{"pipeline.stages=4", "pipeline.recompute=full", "pipeline.layout=Ett|tt|tt|ttL"}, Devices{Devices: 4},
			4 * f * (m + p - 1)},
		{"the lower half frozen", []string{`model.freeze=["embed", "0-3"]`}, Devices{Devices: 1}, (1 + 3) * m * 4 * 4},
		{"the upper half frozen", []string{`model.freeze=["4-7", "head"]`}, Devices{Devices: 1}, (3 + 2) * m * 4 * 4},
		{"the lower half frozen, recomputed", []string{`model.freeze=["embed", "0-3"]`, "pipeline.recompute=full"}, Devices{Devices: 1},
			(1 + 4) * m * 4 * 4},
		{"spread", []string{"pipeline.stages=2", `model.freeze=["embed", "0-3"]`, "batch.sequences=4"}, Devices{Devices: 2}, (4 + 4*3) * 4},
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
			weights := b.Trained()
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
	if _, err := Predict(resolved(t), unitCosts(2), Devices{}); !errors.Is(err, ErrCosts) ||
		!strings.Contains(err.Error(), "microbatches of 4") {
		t.Errorf("without costs of the microbatch: %v", err)
	}
	if _, err := Predict(resolved(t, "model.mtp_layers=2"), unitCosts(4), Devices{}); !errors.Is(err, ErrCosts) ||
		!strings.Contains(err.Error(), "layer m is missing, but the model has 2") {
		t.Errorf("without costs of multi-token prediction: %v", err)
	}
	if _, err := Predict(resolved(t, "model.hidden=32"), unitCosts(4), Devices{}); !errors.Is(err, ErrCosts) ||
		!strings.Contains(err.Error(), "hidden 16, but the configuration has 8 and 32") {
		t.Errorf("with another model's costs: %v", err)
	}
}

// Memory has no gradients and no moments of frozen layers, on the devices and in a checkpoint's copy.
func TestFrozenMemory(t *testing.T) {
	var bytes [2][2]int64 // frozen or not: tensors, copy
	var frozen int64      // weights
	for i, sets := range [][]string{nil, {`model.freeze=["embed", "0-3"]`}} {
		b := resolved(t, append(sets, "pipeline.stages=2", "pipeline.layout=Et*4|t*4,L", "model.tie_embeddings=false")...)
		o, err := Configured(b, unitCosts(4), Devices{Devices: 2})
		if err != nil {
			t.Fatal(err)
		}
		bytes[i] = [2]int64{o.TensorBytes[0], o.CheckpointBytes[0]}
		frozen = b.Parameters()[0] - b.Trained()[0]
	}
	if frozen == 0 || bytes[0][1]-bytes[1][1] != 2*4*frozen || bytes[0][0]-bytes[1][0] < 3*4*frozen {
		t.Errorf("with %d weights frozen the first rank needs %d bytes and %d for a checkpoint, else %d and %d", frozen, bytes[1][0], bytes[1][1],
			bytes[0][0], bytes[0][1])
	}
}

// TestShadowMemory: with cluster.shadow = "on", a rank on its own device also holds the shadow of another. On one device there are none.
func TestShadowMemory(t *testing.T) {
	of := func(devices int, sets ...string) *Option {
		t.Helper()
		o, err := Configured(resolved(t, append(sets, "pipeline.stages=2")...), unitCosts(4), Devices{Devices: devices})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	with, without, one := of(2, `cluster.shadow="on"`), of(2), of(1, `cluster.shadow="on"`)
	if without.ShadowBytes != nil || one.ShadowBytes != nil || len(with.ShadowBytes) != 2 {
		t.Fatalf("shadows take %d bytes, without cluster.shadow %d, on one device %d", with.ShadowBytes, without.ShadowBytes,
			one.ShadowBytes)
	}
	each, err := resolved(t, "pipeline.stages=2").ShadowBytes()
	if err != nil {
		t.Fatal(err)
	}
	for d := range 2 {
		if got := with.DeviceBytes(d) - without.DeviceBytes(d); got != each[1-d] {
			t.Errorf("device %d needs %d bytes more with the shadow of the other, want %d", d, got, each[1-d])
		}
	}
	if with.NeedBytes() != max(with.DeviceBytes(0), with.DeviceBytes(1)) {
		t.Errorf("the fullest device needs %d bytes, by device %d and %d", with.NeedBytes(), with.DeviceBytes(0), with.DeviceBytes(1))
	}
}

// TestMeasureFrozen: costs are of layers that are trained, whatever the configuration freezes.
func TestMeasureFrozen(t *testing.T) {
	b := resolved(t, `model.freeze=["embed", "0-6"]`)
	c, err := Measure(context.Background(), b, []int{1}, 0.01, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"E", "t"} {
		if c.Batches[0].Layers[s].WeightGradMS == 0 {
			t.Errorf("the layer %s has no weight gradient: %+v", s, c.Batches[0].Layers)
		}
	}
}

// A message that takes forever, or no number of milliseconds, has no prediction, whatever
// the order comes from.
func TestPredictRefusesLinks(t *testing.T) {
	for _, schedule := range []string{"1f1b", "auto"} {
		b := resolved(t, "pipeline.stages=4", "pipeline.schedule="+schedule)
		for took, c := range map[string]Devices{
			"+Inf ms":   {Devices: 4, BytesPerS: 1e-310},
			"NaN ms":    {Devices: 4, LatencyUS: math.NaN()},
			"-0.001 ms": {Devices: 4, LatencyUS: -1},
		} {
			p, err := Predict(b, unitCosts(4), c)
			if p != nil || !errors.Is(err, ErrDevices) || !strings.Contains(err.Error(), "a message of 2048 bytes would take "+took) {
				t.Errorf("%s, %+v: %+v, %v, want ErrDevices with %s", schedule, c, p, err, took)
			}
		}
	}
}

// TestOneKind: costs are those of one device, so that a pipeline over several kinds is
// refused; one that names the same kind for each rank is not.
func TestOneKind(t *testing.T) {
	b := resolved(t, "pipeline.stages=2", `device.ranks=["cpu", "cuda"]`)
	_, measured := Measure(t.Context(), b, []int{4}, 0, nil)
	_, predicted := Predict(b, unitCosts(4), Devices{Devices: 2})
	_, configured := Configured(b, unitCosts(4), Devices{Devices: 2})
	_, recommended := Recommend(t.Context(), b, unitCosts(4), Devices{Devices: 2})
	for name, err := range map[string]error{"Measure": measured, "Predict": predicted, "Configured": configured, "Recommend": recommended} {
		if err == nil || !strings.Contains(err.Error(), "device.ranks: ranks 0 and 1 compute on cpu and cuda") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	p, err := Recommend(t.Context(), resolved(t, "pipeline.stages=2", `device.ranks=["cpu", "auto"]`), unitCosts(4), slowLinks(4, 0))
	if err != nil || p.Best == nil || p.Best.Stages != 4 {
		t.Errorf("one kind for both ranks: %+v, %v", p, err)
	}
}

// Where messages take little time, collectives much, and memory is no bound, nothing beats a schedule without
// a bubble; where it is one, what fits is recommended, and recomputation only if nothing
// else does.
func TestRecommend(t *testing.T) {
	b := resolved(t)
	free, err := Recommend(t.Context(), b, unitCosts(2, 4), slowLinks(4, 0))
	if err != nil {
		t.Fatal(err)
	}
	// 32 sequences by 2: 16 microbatches. Of the two sizes the smaller has the smaller
	// bubble. A rank's work is 3 passes of 2 layers of 32 sequences.
	const work = 3 * 2 * 32
	if o := free.Best; o == nil || o.Stages != 4 || o.Microbatch != 2 || o.MakespanMS < work || o.MakespanMS > 1.1*work ||
		o.Recompute != "none" {
		t.Fatalf("best: %+v", free.Best)
	}
	for _, list := range [][]*Option{free.ByGrid, free.ByStages, free.BySchedule, free.ByMicrobatch} {
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
	tight, err := Recommend(t.Context(), b, unitCosts(2, 4), slowLinks(4, least))
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
	none, err := Recommend(t.Context(), b, unitCosts(2, 4), slowLinks(4, 1))
	if err != nil || none.Best != nil || len(none.TooLarge) == 0 {
		t.Errorf("in one byte: %+v, %v", none, err)
	}
}

// Recomputation is recommended where nothing fits without, and no more of it than needed.
func TestRecommendRecompute(t *testing.T) {
	b := resolved(t, "model.context=64", "batch.sequences=8", "batch.microbatch=1")
	costs := unitCosts(1)
	costs.Context = 64
	free, err := Recommend(t.Context(), b, costs, slowLinks(2, 0))
	if err != nil {
		t.Fatal(err)
	}
	leanest := slices.MinFunc(slices.Concat(free.BySchedule, free.ByStages, free.ByMicrobatch),
		func(a, b *Option) int { return cmp.Compare(a.NeedBytes(), b.NeedBytes()) })
	for share, wants := range map[float64]string{0.98: "partial", 0.8: "full"} {
		tight, err := Recommend(t.Context(), b, costs, slowLinks(2, int64(share*float64(leanest.NeedBytes()))))
		if err != nil {
			t.Fatal(err)
		}
		if o := tight.Best; o == nil || !o.Fits || o.Recompute != wants {
			t.Errorf("with %v of %d bytes: %+v, want recompute %s", share, leanest.NeedBytes(), o, wants)
		}
	}
}

// Sizes of microbatches that the costs lack, or that don't divide a step's sequences,
// are no options, and without any the search says so.
func TestRecommendWithoutOptions(t *testing.T) {
	p, err := Recommend(t.Context(), resolved(t), unitCosts(3, 5), Devices{Devices: 4})
	if p != nil || !errors.Is(err, ErrCosts) || !strings.Contains(err.Error(), "8 layers and 32 sequences") {
		t.Errorf("%+v, %v, want ErrCosts with the numbers", p, err)
	}
	p, err = Recommend(t.Context(), resolved(t), unitCosts(3, 4), Devices{Devices: 4})
	if err != nil || p.Best.Microbatch != 4 {
		t.Errorf("%+v, %v, want microbatches of 4", p, err)
	}
}

// All that takes long ends with its context, and leaves no stream behind.
func TestCancelled(t *testing.T) {
	b := resolved(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	for _, name := range []string{"TMPDIR", "TMP"} {
		t.Setenv(name, dir)
	}
	c, measured := Measure(ctx, b, []int{1}, 1, nil)
	p, recommended := Recommend(ctx, b, unitCosts(2, 4), Devices{Devices: 4})
	v, checked := Check(ctx, tiny(), 1, 1, func(string) {})
	if c != nil || p != nil || v != nil {
		t.Errorf("costs %v, recommendation %v, verdict %v, want none", c, p, v)
	}
	for name, err := range map[string]error{"Measure": measured, "Recommend": recommended, "Check": checked} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: error %v, want context.Canceled", name, err)
		}
	}
	dev, of := sampled(t, b)
	if _, err := measureShares(ctx, b, of, dev, 1); !errors.Is(err, context.Canceled) || dev.Memory().InUse != 0 {
		t.Errorf("measureShares: error %v, %d bytes in use, want context.Canceled and none", err, dev.Memory().InUse)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A cancellation during the search, which is looked at before each option, ends it.
func TestRecommendEndsMidway(t *testing.T) {
	for _, left := range []int{1, 10, 60} {
		ctx := &ending{Context: t.Context(), left: left}
		if p, err := Recommend(ctx, resolved(t), unitCosts(4), Devices{Devices: 4}); p != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("after %d options: %v, %v, want context.Canceled", left, p, err)
		}
	}
}

// ending is cancelled after it has been asked some times.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
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

// TestMeasurePassing: layers whose edges differ in width are measured, and estimated for a GPU, without those in the middle.
func TestMeasurePassing(t *testing.T) {
	for _, sets := range [][]string{nil, {"device.dtype=bfloat16", "model.mtp_layers=1"}} {
		sets = append(sets, "model.family=gemma4_text", "model.kv_heads=2", "model.window=3", "model.layers=10", "pipeline.stages=2")
		cfg, err := tiny(sets...)(bench.SizesOnly)
		if err != nil {
			t.Fatal(err)
		}
		b, err := plan.New(cfg, 40, stages.Config{Family: stages.Gemma4, Context: 8, Full: []int{1, 3, 5, 7, 9}, LayerInput: 5, SharedKV: 3})
		if err != nil {
			t.Fatal(err)
		}
		measured, err := Measure(t.Context(), b, []int{4}, 1e-9, nil)
		if err != nil {
			t.Fatal(err)
		}
		h100, _ := gpus.Named("h100")
		estimated, err := Estimate(b, []int{4}, h100)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []*Costs{measured, estimated} {
			if o, err := Configured(b, c, Devices{Devices: 1}); err != nil || !(o.StepMS > 0) {
				t.Errorf("%+v, %v", o, err)
			}
		}
	}
}

// TestMeasuredLayers: forecasts from a few decoder layers are those from all, although layers have windows or, as in Gemma 4 E2B, the later
// ones have wider feed-forward parts.
func TestMeasuredLayers(t *testing.T) {
	h100, _ := gpus.Named("h100")
	full := []int{4, 9, 14, 19, 24, 29, 34}
	for _, c := range []struct {
		name string
		sets []string
		of   stages.Config
	}{
		{"alike", []string{"model.family=llama"}, stages.Config{}},
		{"windows", []string{"model.family=gemma3_text", "model.window=64"}, stages.Config{Family: stages.Gemma3, Context: 1024, Full: full}},
		{"E2B", []string{"model.family=gemma4_text", "model.kv_heads=1", "model.window=512", "model.head_dim=256"},
			stages.Config{Family: stages.Gemma4, Context: 1024, Full: full, FullHeadDim: 512, LayerInput: 256, SharedKV: 20, WideShared: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := tiny(append([]string{"model.layers=35", "model.hidden=1536", "model.heads=8", "model.ffn=6144", "model.context=1024",
				"model.vocab=8192", "device.dtype=bfloat16"}, c.sets...)...)(bench.SizesOnly)
			if err != nil {
				t.Fatal(err)
			}
			b, err := plan.New(cfg, 8192, c.of)
			if err != nil {
				t.Fatal(err)
			}
			step := func(decoders int) float64 {
				t.Helper()
				costs, err := estimate(b, []int{4}, h100, decoders)
				if err != nil {
					t.Fatal(err)
				}
				p, err := Predict(b, costs, Devices{Devices: 1})
				if err != nil {
					t.Fatal(err)
				}
				return p.MakespanMS
			}
			few, all := step(mostDecoders), step(cfg.Model.Layers)
			// What each layer takes by itself.
			model, err := trainedModel(b)
			if err != nil {
				t.Fatal(err)
			}
			e := &estimator{DryStream: tensorops.NewDryStream(), gpu: h100}
			m, err := newMeter(&sample{model: model, decoders: cfg.Model.Layers, shrunk: 1}, b.StageOptions(0), e, 4, false)
			if err != nil {
				t.Fatal(err)
			}
			defer m.close()
			m.now = e.now
			if err := m.pass(false); err != nil {
				t.Fatal(err)
			}
			each := 0.0
			for _, c := range m.chunks {
				each += (c.times[scheduler.F][0] + c.times[scheduler.B][0]) * c.layers
			}
			each *= float64(cfg.Batch.Sequences / cfg.Batch.Microbatch)
			t.Logf("%.1f ms from %d layers, %.1f from %d, %.1f of each by itself", few, mostDecoders, all, cfg.Model.Layers, each)
			if math.Abs(few/all-1) > 0.1 || math.Abs(few/each-1) > 0.1 {
				t.Errorf("%v ms from %d layers, %v from %d, %v of each by itself", few, mostDecoders, all, cfg.Model.Layers, each)
			}
		})
	}
}

// gpt2 is GPT-2 124M in bfloat16 on a GPU, 16 sequences of 1024 in one microbatch.
func gpt2(t *testing.T) *plan.Plan {
	t.Helper()
	cfg, err := bench.ModelConfig("gpt", slices.Concat(bench.SizesOnly, []string{"model.layers=12", "model.hidden=768", "model.heads=12",
		"model.context=1024",
		"model.vocab=50257", "model.family=gpt2", "batch.sequences=16", "batch.microbatch=16", "device.kind=cuda", "device.dtype=bfloat16"}))
	return planOf(t, cfg, err)
}

// TestEstimate holds estimates to what bounds them: arithmetic at the data sheet's speed from below, and
// twice that with all bytes from above; and that of an H200 to what was measured on one.
func TestEstimate(t *testing.T) {
	h100, _ := gpus.Named("h100")
	b := gpt2(t)
	costs, err := Estimate(b, []int{16}, h100)
	if err != nil {
		t.Fatal(err)
	}
	if err := costs.check(); err != nil {
		t.Error(err)
	}
	p, err := Predict(b, costs, Devices{Devices: 1})
	if err != nil {
		t.Fatal(err)
	}
	tokens := 16.0 * 1024
	least := 1e3 * b.TokenFLOPs() * tokens / h100.BF16FLOPs
	t.Logf("%.1f ms a step, of which the update %.2f; arithmetic alone %.1f", p.StepMS, p.UpdateMS, least)
	if p.StepMS < least || p.StepMS > 3*least {
		t.Errorf("a step of %v ms, arithmetic takes %v", p.StepMS, least)
	}
	// The norm reads gradients, the update reads four and writes four numbers of each weight, and half a one.
	if want := 1e9 * (4 + 8*4 + 2) / (memoryShare * h100.BytesPerS); costs.UpdateNS < want || costs.UpdateNS > 1.1*want {
		t.Errorf("the update of a weight takes %v ns, want about %v", costs.UpdateNS, want)
	}
	h200, _ := gpus.Named("h200")
	measured, err := Estimate(b, []int{16}, h200)
	if err != nil {
		t.Fatal(err)
	}
	step, err := Predict(b, measured, Devices{Devices: 1, PeakFLOPs: h200.BF16FLOPs})
	if err != nil {
		t.Fatal(err)
	}
	// 466,861 tokens/s, MFU 37.7 %: BENCHMARKS.md, "On a GPU".
	if math.Abs(step.TokensPerS/466_861-1) > 0.03 || math.Abs(step.MFUPct/37.7-1) > 0.03 {
		t.Errorf("an H200 is estimated to train %.0f tokens/s, MFU %.1f %%", step.TokensPerS, step.MFUPct)
	}
	// What is bound by bytes follows the memory, what is bound by products does not.
	faster := h100
	faster.BytesPerS *= 2
	again, err := Estimate(b, []int{16}, faster)
	if err != nil {
		t.Fatal(err)
	}
	was, is := costs.Batches[0].Layers["t"].ForwardMS, again.Batches[0].Layers["t"].ForwardMS
	if is >= was || is < was/2 || again.Batches[0].Layers["E"].ForwardMS > 0.7*costs.Batches[0].Layers["E"].ForwardMS {
		t.Errorf("a layer's forward takes %v ms with twice the memory's speed, %v before; %+v", is, was, again.Batches[0].Layers["E"])
	}
	if err := p.Memory(b, Devices{Devices: 1}); err != nil || p.NeedBytes() < 16*124_000_000 || p.NeedBytes() > h100.MemoryBytes {
		t.Errorf("%d bytes of memory, %v", p.NeedBytes(), err)
	}
}

// What a rank's part of the layers takes is measured without anybody else, and predicts its own grid alone.
func TestMeasureRank(t *testing.T) {
	grids := [][]string{{"parallel.tensor=2"}, {"parallel.tensor=2", "parallel.sequence=true"}, {"parallel.context=2"},
		{"parallel.tensor=2", "parallel.context=2", "parallel.data=2", "model.family=llama"}}
	for i, sets := range grids {
		b := resolved(t, append([]string{"model.heads=4", "batch.microbatch=4"}, sets...)...)
		c, err := MeasureRank(t.Context(), b, []int{4}, 1e-9)
		if err != nil {
			t.Fatalf("%v: %v", sets, err)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ReadCosts(text); err != nil || !reflect.DeepEqual(again, c) || !c.divided() {
			t.Errorf("%v: %s reads as %+v, %v", sets, text, again, err)
		}
		if p, err := Predict(b, c, Devices{Devices: 8, LatencyUS: 10}); err != nil || !(p.StepMS > 0) || p.TensorMS+p.ContextMS <= 0 {
			t.Errorf("%v: %+v, %v", sets, p, err)
		}
		other := resolved(t, append([]string{"model.heads=4", "batch.microbatch=4"}, grids[(i+1)%len(grids)]...)...)
		if _, err := Predict(other, c, Devices{Devices: 8}); !errors.Is(err, ErrCosts) {
			t.Errorf("costs of %v predict %v: %v", sets, grids[(i+1)%len(grids)], err)
		}
	}
	b := resolved(t, "model.heads=4", "pipeline.stages=2", "parallel.tensor=[1, 2]")
	if c, err := MeasureRank(t.Context(), b, []int{4}, 1e-9); err != nil || c.divided() {
		t.Errorf("stages of two sizes: %+v, %v", c, err)
	}
}

// What was measured with is given back, before the next is measured.
func TestMeasuringGivesBack(t *testing.T) {
	b := resolved(t)
	dev, of := sampled(t, b)
	left := func(after string) {
		t.Helper()
		if m := dev.Memory(); m.InUse != 0 || m.Pooled != 0 || m.Peak == 0 {
			t.Errorf("after %s: %+v", after, m)
		}
	}
	m, err := newMeter(of, b.StageOptions(0), dev.NewStream("test"), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.sample(t.Context(), 1e-9); err != nil {
		t.Error(err)
	}
	m.close()
	left("layers")
	if _, err := measureShares(t.Context(), b, of, dev, 1); err != nil {
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

// What cannot be loaded, or is refused, is checked no further.
func TestCheckRefuses(t *testing.T) {
	missing := errors.New("no such model")
	for _, c := range []struct {
		name string
		load bench.Load
		is   error
		says string
	}{
		{"no configuration", func([]string) (*config.Config, error) { return nil, missing }, missing, ""},
		{"a key", tiny("model.heads=5"), nil, "model.heads"},
		{"kernels", tiny("device.kernels=mmx"), nil, "mmx"},
	} {
		v, err := Check(t.Context(), c.load, 1, 1e-9, func(string) { t.Errorf("%s: was measured", c.name) })
		if v != nil || err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %+v, %v", c.name, v, err)
		}
	}
	if _, err := Measure(t.Context(), resolved(t, "device.kernels=mmx"), []int{1}, 1e-9, nil); !errors.Is(err, cpu.ErrKernels) ||
		!strings.Contains(err.Error(), "device.kernels") {
		t.Errorf("measure with unknown kernels: %v", err)
	}
}

// Costs from a file are refused with the place and the number that is wrong.
func TestReadCostsRefuses(t *testing.T) {
	text, err := json.Marshal(unitCosts(4))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, text, says string }{
		{"too long", strings.Repeat(" ", MaxCostsBytes+1), "more than 1048576 bytes"},
		{"no JSON", "layers", "invalid character"},
		{"empty", "{}", `0 "batches" and 0 "shares"`},
		{"a name that steers a terminal", strings.Replace(string(text), `"go"`, `"\u001b[2J"`, 1), `"\x1b[2J" is not a valid name of kernels`},
		{"a share of nothing", strings.Replace(string(text), "0.75", "0", 1), "shares[1] is 0, but must be a finite number, at least 1e-09"},
		{"a missing layer", strings.Replace(string(text), `"L"`, `"m"`, 1), "microbatch 4: layer L is missing"},
	} {
		if _, err := ReadCosts([]byte(c.text)); !errors.Is(err, ErrCosts) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want ErrCosts with %q", c.name, err, c.says)
		}
	}
}

// FuzzReadCosts: whatever is read can be predicted by.
func FuzzReadCosts(f *testing.F) {
	text, err := json.Marshal(unitCosts(1, 4))
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{string(text), "", "{}", "[]", strings.Replace(string(text), "0.75", "-1", 1),
		strings.Replace(string(text), `"t"`, `"x"`, 1),
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

// TestRecommendContext: of a single sequence, with heads that don't divide, ranks can share positions alone.
func TestRecommendContext(t *testing.T) {
	b := resolved(t, "batch.sequences=1", "batch.microbatch=1", "model.heads=1", "model.kv_heads=1")
	p, err := Recommend(t.Context(), b, unitCosts(1), Devices{Devices: 2, BytesPerS: 1e12})
	if err != nil {
		t.Fatal(err)
	}
	if o := p.Best; o == nil || o.Context != 2 || o.Tensor != 1 || o.Data != 1 || o.Stages != 1 || !(o.ContextMS > 0) {
		t.Errorf("%+v, want context 2", o)
	}
	b = resolved(t, "batch.sequences=1", "batch.microbatch=1", "model.heads=1", "model.kv_heads=1", "model.family=mistral", "model.window=4")
	if p, err = Recommend(t.Context(), b, unitCosts(1), Devices{Devices: 2, BytesPerS: 1e12}); err != nil || p.Best.Context != 2 {
		t.Errorf("with a window: %+v, %v", p, err)
	}
}
