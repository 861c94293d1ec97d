package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/tensorops"
)

// sites has a process and a host for each rank, by letters: "a0" is process a on host 0.
func sites(text string) (all []Site) {
	for _, w := range strings.Fields(text) {
		all = append(all, Site{Process: w[:1], Host: w[1:]})
	}
	return all
}

// TestPlaceShadows: a shadow is in another process than its rank, on another host if there is one, stays where it was, and never leaves
// the edge.
func TestPlaceShadows(t *testing.T) {
	for _, c := range []struct {
		name, sites string
		was, want   []int
		edge        bool
		why         string
	}{
		{"a process each", "a0 b0 c0 d0", nil, []int{1, 2, 3, 0}, false, ""},
		{"two in each", "a0 a0 b0 b0", nil, []int{2, 2, 0, 0}, false, ""},
		{"two hosts", "a0 b0 c1 d1", nil, []int{2, 2, 0, 0}, false, ""},
		{"it stays", "a0 b0 c0 d0", []int{3, 0, 1, 2}, []int{3, 0, 1, 2}, false, ""},
		{"it moves only where it must", "a0 b0 b0 d0", []int{3, 2, 0, 1}, []int{3, 3, 0, 1}, false, ""},
		{"one process", "a0 a0 a0 a0", nil, nil, false, "one worker"},
		{"on the edge", "a0 b1 c1 d1", nil, []int{-1, 0, 0, 0}, true, "cluster.edge"},
	} {
		p, err := gridPlan(t, "pipeline.stages=4", "pipeline.schedule=1f1b")
		if err != nil {
			t.Fatal(err)
		}
		p.cfg.Cluster.Edge = c.edge
		got := p.PlaceShadows(sites(c.sites), c.was)
		if !slices.Equal(got.At, c.want) || c.why == "" != (got.Why == "") || !strings.Contains(got.Why, c.why) {
			t.Errorf("%s: %d (%s), want %d (%s)", c.name, got.At, got.Why, c.want, c.why)
		}
		var processes []string
		for _, s := range sites(c.sites) {
			processes = append(processes, s.Process)
		}
		if err := p.CheckPlaces(got.At, processes); err != nil {
			t.Errorf("%s: its own places are refused: %v", c.name, err)
		}
		for _, wrong := range [][]int{{0, 0, 0, 0}, {4, 0, 0, 0}, {-2, 0, 0, 0}, {1}} {
			if err := p.CheckPlaces(wrong, processes); err == nil {
				t.Errorf("%s: the places %d are not refused", c.name, wrong)
			}
		}
	}
}

func inExpertGroups() []string { return []string{"model.family=qwen3_moe", "parallel.expert=2"} }

// TestHolder: a lost rank's state comes from a replica or a shadow that is not lost, or there is a reason why not.
func TestHolder(t *testing.T) {
	for _, c := range []struct {
		name    string
		sets    []string
		shadows Shadows
		lost    []int
		want    string // "": it is kept
	}{
		{"shadow", []string{"pipeline.stages=4"}, Shadows{At: []int{1, 2, 3, 0}}, []int{1}, ""},
		{"two with shadows", []string{"pipeline.stages=4"}, Shadows{At: []int{1, 2, 3, 0}}, []int{0, 2}, ""},
		{"rank and shadow", []string{"pipeline.stages=4"}, Shadows{At: []int{1, 2, 3, 0}}, []int{1, 2},
			"its shadow, which was with rank 2, too"},
		{"no shadow", []string{"pipeline.stages=4"}, Shadows{Why: "there is one worker"}, []int{1}, "there is one worker"},
		{"replica", []string{"parallel.data=2"}, Shadows{}, []int{1}, ""},
		{"all replicas", []string{"parallel.data=2"}, Shadows{}, []int{0, 1}, "all ranks with the weights"},
		{"expert groups", append(inExpertGroups(), "parallel.data=4"), Shadows{}, []int{0, 1}, ""},
		{"all ranks with some experts", append(inExpertGroups(), "parallel.data=4"), Shadows{}, []int{1, 3},
			"all ranks with the weights of rank 1 are lost: 1, 3"},
		{"an expert group with shadows", append(inExpertGroups(), "parallel.data=2"), Shadows{At: []int{1, 0}}, []int{1}, ""},
		{"an expert group without shadows", append(inExpertGroups(), "parallel.data=2"), Shadows{Why: "there is one worker"}, []int{1},
			"there is one worker"},
		{"whole experts", append(inExpertGroups(), "parallel.data=2", "parallel.tensor=2", "parallel.expert_tensor=1"), Shadows{},
			[]int{0, 1}, ""},
		{"all ranks with some whole experts and slices", append(inExpertGroups(), "parallel.data=2", "parallel.tensor=2",
			"parallel.expert_tensor=1"), Shadows{}, []int{1, 3}, "all ranks with the weights of rank 1 are lost: 1, 3"},
		{"zero", []string{"parallel.data=2", "parallel.zero=1"}, Shadows{}, []int{1}, "parallel.zero"},
		{"zero without replicas", []string{"pipeline.stages=2"}, Shadows{At: []int{1, 0}}, []int{1}, ""},
		{"narrow state", []string{"pipeline.stages=2", "optimizer.state_dtype=bfloat16"}, Shadows{At: []int{1, 0}}, []int{1},
			"optimizer.state_dtype"},
		{"GPUs", []string{"pipeline.stages=2", "device.kind=cuda"}, Shadows{At: []int{1, 0}}, []int{1}, "stage 0 is on a GPU"},
		{"replicas on GPUs", []string{"parallel.data=2", "device.kind=cuda"}, Shadows{}, []int{1}, "stage 0 is on a GPU"},
		{"a GPU and the CPU", []string{"pipeline.stages=2", `device.ranks=["cpu", "cuda"]`}, Shadows{At: []int{1, 0}}, []int{0},
			"stage 1 is on a GPU"},
		{"muon", []string{"pipeline.stages=2", "optimizer.name=muon"}, Shadows{At: []int{1, 0}}, []int{1}, ""},
		{"muon in tensor groups", []string{"pipeline.stages=2", "parallel.tensor=[1,2]", "parallel.data=2", "optimizer.name=muon"},
			Shadows{}, []int{1}, "parallel.tensor = 2"},
		{"muon for some weights in tensor groups", []string{"parallel.tensor=2", "parallel.data=2",
			`optimizer.group=[{match = ["*mlp*"], name = "muon"}]`}, Shadows{}, []int{1}, "parallel.tensor = 2"},
		{"muon in tensor groups, shadows", []string{"pipeline.stages=2", "parallel.tensor=[1,2]", "optimizer.name=muon"},
			Shadows{At: []int{1, 2, 0}}, []int{1}, "parallel.tensor = 2"},
	} {
		p, err := gridPlan(t, c.sets...)
		if err != nil {
			t.Fatal(err)
		}
		err = p.Keeps(c.lost, c.shadows)
		if c.want == "" != (err == nil) || err != nil && (!errors.Is(err, ErrNoHolder) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestNoShadowInGroup: matrices that a tensor group makes orthogonal together have no shadows; whole ones do.
func TestNoShadowInGroup(t *testing.T) {
	for _, c := range []struct{ sets, want string }{
		{"pipeline.stages=2 optimizer.name=muon", ""},
		{"pipeline.stages=2 parallel.tensor=[1,2] optimizer.name=adamw", ""},
		{"pipeline.stages=2 parallel.tensor=[1,2] optimizer.name=muon", "parallel.tensor = 2"},
	} {
		p, err := gridPlan(t, strings.Fields(c.sets)...)
		if err != nil {
			t.Fatal(err)
		}
		err = p.CheckShadows()
		if c.want == "" != (err == nil) || err != nil && (!errors.Is(err, ErrNoHolder) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.sets, err, c.want)
		}
	}
}

// TestOwnLayersHaveNoHolder: a model of the program's own layers can have no shadows, and its ranks get their state from a checkpoint.
func TestOwnLayersHaveNoHolder(t *testing.T) {
	const digits = "../../examples/digits/digits-"
	cfg, err := config.Parse("own.toml", []byte(`
run = {steps = 2}
model = {family = "stack", stack = ["input field=x", "dense out=10", "dense out=10", "cross_entropy"]}
data = {format = "csv", train = ["`+digits+`train.csv"], val = ["`+digits+`test.csv"], label = "label"}
batch = {sequences = 4, microbatch = 1}
pipeline = {stages = 2}
`), []string{"run.out=" + t.TempDir()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{p.CheckShadows(), p.Keeps([]int{1}, Shadows{At: []int{1, 0}})} {
		if !errors.Is(err, ErrNoHolder) || !strings.Contains(err.Error(), "the program's own layers") {
			t.Errorf("%v, want that the model has the program's own layers", err)
		}
	}
}

// TestHeldBytes: with cluster.shadow = "on", the memory of a rank with its own process has the shadow of the rank before. It counts against
// device.memory_gib and the memory of a device.
func TestHeldBytes(t *testing.T) {
	sets := []string{"pipeline.stages=3", "pipeline.layout=Et|ttt|L", `cluster.shadow="on"`}
	p, err := gridPlan(t, sets...)
	if err != nil {
		t.Fatal(err)
	}
	shadows := p.ShadowsApart()
	if !slices.Equal(shadows.At, []int{1, 2, 0}) {
		t.Fatalf("the shadows are at %d", shadows.At)
	}
	each, err1 := p.ShadowBytes()
	plain, err2 := p.RankBytes(Shadows{})
	with, err3 := p.RankBytes(shadows)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	for rank := range with {
		if got, want := with[rank]-plain[rank], each[(rank+2)%3]; got != want {
			t.Errorf("rank %d needs %d bytes more with the shadow of the rank before, want %d", rank, got, want)
		}
	}
	fullest := func(p *Plan) (most int64) {
		tensors, err := p.TensorBytes()
		if err != nil {
			t.Fatal(err)
		}
		for rank, bytes := range tensors {
			most = max(most, bytes+each[(rank+2)%3])
		}
		return most
	}
	most := fullest(p)
	if err := p.CheckDeviceMemory(most); err != nil {
		t.Error(err)
	}
	if err := p.CheckDeviceMemory(most - 1); !errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "cluster.shadow") {
		t.Errorf("a byte less than the fullest rank with its shadow needs is enough: %v", err)
	}
	limited := func(bytes int64) *Plan {
		p, err := gridPlan(t, append(sets, fmt.Sprintf("device.memory_gib=%v", float64(bytes)/(1<<30)))...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	most = fullest(limited(1 << 40)) // the layout of memory with a limit
	for more, small := range map[int64]bool{0: false, -4096: true} {
		p := limited(most + more)
		err := p.CheckDeviceMemory(0)
		if same := p.CheckLimit(shadows); fmt.Sprint(same) != fmt.Sprint(err) {
			t.Errorf("with a limit of %d bytes: %v before a run, and %v when it begins", most+more, err, same)
		}
		if err := p.CheckLimit(Shadows{}); err != nil {
			t.Errorf("with a limit of %d bytes, without shadows: %v", most+more, err)
		}
		if small != errors.Is(err, ErrMemory) || small && !strings.Contains(err.Error(), "cluster.shadow") {
			t.Errorf("with a limit of %d bytes: %v", most+more, err)
		}
	}
	for _, other := range [][]string{{"pipeline.stages=3"}, {"parallel.data=2", `cluster.shadow="on"`}} {
		p, err := gridPlan(t, other...)
		if err != nil {
			t.Fatal(err)
		}
		if s := p.ShadowsApart(); s.Any() || s.Why == "" {
			t.Errorf("%v: the shadows are at %d: %s", other, s.At, s.Why)
		}
	}
}

// TestCheckRanks: a worker's free memory must have room for its ranks, their part of a checkpoint's copy and the shadows that it gets.
func TestCheckRanks(t *testing.T) {
	p, err := gridPlan(t, "pipeline.stages=2", `cluster.shadow="on"`)
	if err != nil {
		t.Fatal(err)
	}
	need, err := p.RankBytes(Shadows{At: []int{1, 0}})
	if err != nil {
		t.Fatal(err)
	}
	free := device.HostFreeBytes
	t.Cleanup(func() { device.HostFreeBytes = free })
	for _, c := range []struct {
		what            string
		has             int64
		ranks, shadowed []int
		want            string // "": there is room
	}{
		{"a rank and the shadow of the other", need[0] + 1, []int{0}, []int{1}, ""},
		{"a byte too few", need[0] - 2, []int{0}, []int{1}, `cluster.shadow = "off"`},
		{"what is kept needs no more", 1, nil, nil, ""},
	} {
		device.HostFreeBytes = func() int64 { return c.has }
		err := p.CheckRanks(c.ranks, c.shadowed)
		if c.want == "" != (err == nil) || err != nil && (!errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// TestShadowBytes: a shadow with AdamW takes 16 bytes for each trained parameter: weight, two moments, and a gradient.
func TestShadowBytes(t *testing.T) {
	for _, sets := range [][]string{{"pipeline.stages=2"}, {"pipeline.stages=2", `model.freeze=["0"]`}, {"parallel.tensor=2"},
		{"pipeline.stages=2", "model.family=gpt_oss", "parallel.data=4", "parallel.expert=4"},
		{"parallel.tensor=2", "parallel.data=2", "parallel.expert=4", "parallel.expert_tensor=1", "model.family=qwen3_moe"}} {
		p, err := gridPlan(t, sets...)
		if err != nil {
			t.Fatal(err)
		}
		bytes, err := p.ShadowBytes()
		if err != nil {
			t.Fatal(err)
		}
		for rank, got := range bytes {
			s := tensorops.NewDryStream()
			shadow, err := p.buildShadow(rank, s)
			if err != nil {
				t.Fatal(err)
			}
			if want := 16 * shadow.Elements(); got < want || got > want+want/50+4096 {
				t.Errorf("%v: the shadow of rank %d takes %d bytes, want %d", sets, rank, got, want)
			}
			if stage := p.stageOf(rank); p.grid.TensorSize(stage) == 1 && float64(shadow.Elements()) != p.trainedOf(stage) {
				t.Errorf("%v: the shadow of rank %d has %d parameters, want %g", sets, rank, shadow.Elements(), p.trainedOf(stage))
			}
			if err := shadow.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestShadowCost: the predicted cost falls with the tokens of a step, and auto says what is too dear.
func TestShadowCost(t *testing.T) {
	at := sites("a0 b0")
	check := func(sequences string, bytesPerS float64) error {
		p, err := gridPlan(t, "pipeline.stages=2", "model.context=256", "model.hidden=64", sequences)
		if err != nil {
			t.Fatal(err)
		}
		return p.CheckShadowCost(p.PlaceShadows(at, nil), at, []int{1, 1}, []float64{bytesPerS, bytesPerS})
	}
	if err := check("batch.sequences=2", 0); err == nil || !strings.Contains(err.Error(), "cluster.shadow") {
		t.Errorf("512 tokens a step: %v", err)
	}
	if err := check("batch.sequences=64", 0); err != nil {
		t.Errorf("16,384 tokens a step: %v", err)
	}
	if err := check("batch.sequences=64", 1e9); err != nil {
		t.Errorf("16,384 tokens a step, 1 GB/s: %v", err)
	}
	if err := check("batch.sequences=64", 1e6); err == nil || !strings.Contains(err.Error(), "cluster.shadow") {
		t.Errorf("16,384 tokens a step, 1 MB/s: %v", err)
	}
}
