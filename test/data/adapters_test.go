package data

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// The training of testdata/hf/adapters.py.
const (
	adapterSteps, adapterSequences, adapterContext = 50, 4, 24
	adapterTokens                                  = 3000

	adapterLossLimit = 1e-4
)

// adapterCase is an adapter that testdata/hf/adapters.py has trained with PEFT.
type adapterCase struct {
	Losses             []float64
	LR                 float64
	Beta1, Beta2, Eps  float64
	dir                string
	expected           *safetensors.File
	tokens             []uint16
	windows            []int64 // offsets of the sequences, in the order of the training
	from, initial, run string
}

// TestAdaptersInPEFT is make check-peft: for every entry of testdata/hf/adapters.py, Troupe continues the adapter that PEFT made. The
// gradients of the first step and 50 losses are those of PEFT, and PEFT loads the directory, and transformers the merged model, that
// Troupe writes. TROUPE_ADAPTERS names some of the entries.
func TestAdaptersInPEFT(t *testing.T) {
	python := os.Getenv("TROUPE_PYTHON")
	if python == "" || os.Getenv("TROUPE_PEFT") == "" {
		t.Skip("make check-peft sets TROUPE_PYTHON, a Python with torch, transformers and peft")
	}
	dir := t.TempDir()
	script := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", "hf", "adapters.py")}, args...)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("adapters.py %s: %v\n%s%s", args[0], err, out, errs.String())
		}
		return strings.TrimSpace(string(out))
	}
	e, err := data.NewEpochs(1, adapterTokens, adapterContext)
	if err != nil {
		t.Fatal(err)
	}
	var windows []int64
	var text strings.Builder
	for i := range int64(adapterSteps * adapterSequences) {
		_, at := e.Window(i)
		windows = append(windows, at)
		fmt.Fprintln(&text, at)
	}
	offsets := testrun.Write(t, filepath.Join(t.TempDir(), "offsets"), text.String())
	script(append([]string{"write", dir, offsets}, strings.Fields(os.Getenv("TROUPE_ADAPTERS"))...)...)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no adapters in %s: %v", dir, err)
	}
	for _, at := range names {
		t.Run(filepath.Base(at), func(t *testing.T) {
			c := readAdapterCase(t, at)
			c.windows = windows
			c.train(t)
			c.export(t)
		})
	}
	t.Logf("PEFT and transformers read what Troupe writes:\n%s", script("read", dir))
}

func readAdapterCase(t *testing.T, dir string) *adapterCase {
	t.Helper()
	c := &adapterCase{dir: dir, from: filepath.Join(dir, "base"), initial: filepath.Join(dir, "initial"),
		run: filepath.Join(t.TempDir(), "run")}
	if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(dir, "expected.json"))), c); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.expected, err = safetensors.Open(filepath.Join(dir, "expected.safetensors")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.expected.Close() })
	for b := range slices.Chunk([]byte(testrun.Read(t, filepath.Join(dir, "data.bin"))), 2) {
		c.tokens = append(c.tokens, uint16(b[0])|uint16(b[1])<<8)
	}
	return c
}

// train compares the gradients of the first step and the losses.
func (c *adapterCase) train(t *testing.T) {
	val := testrun.Write(t, filepath.Join(t.TempDir(), "val.bin"), testrun.Read(t, filepath.Join(c.dir, "data.bin")))
	balance := ""
	if base := testrun.Read(t, filepath.Join(c.from, "config.json")); strings.Contains(base, "experts_per_tok") {
		balance = ", aux_loss_weight = 0.0"
	}
	text := fmt.Sprintf(`run = {out = %q, steps = %d, seed = 1, eval_every = 0, checkpoint_every = 0}
model = {from = %q, context = %d, dropout = 0.0, frozen_dtype = "float32"%s}
adapter = {from = %q}
data = {train = [%q], val = [%q], format = "uint16"}
batch = {sequences = %d, microbatch = 2}
optimizer = {lr = %g, warmup_steps = 0, decay = "constant", beta1 = %g, beta2 = %g, eps = %g, weight_decay = 0.0, clip_norm = 0.0}
pipeline = {stages = 2}
device = {kind = "cpu"}
`, c.run, adapterSteps, c.from, adapterContext, balance, c.initial, filepath.Join(c.dir, "data.bin"), val,
		adapterSequences, c.LR, c.Beta1, c.Beta2, c.Eps)
	cfg, err := config.Parse("adapter.toml", []byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Finish(t, testrun.Start(t, cfg))
	apart, n := 0.0, 0
	for _, r := range testrun.Records(t, c.run) {
		if r.Step > 0 {
			apart = max(apart, math.Abs(*r.Loss-c.Losses[r.Step-1]))
			n++
		}
	}
	grads, worst := c.grads(t)
	t.Logf("gradients off by at most %.1e (%s), %d losses from %.4f to %.4f at most %.1e apart", grads, worst, n, c.Losses[0],
		c.Losses[adapterSteps-1], apart)
	if !(apart <= adapterLossLimit) || n != adapterSteps || !(grads <= gradsLimit) {
		t.Errorf("beyond the limits of %g of a loss and %g of a gradient, by norm", adapterLossLimit, gradsLimit)
	}
}

// grads compares the gradients of the first step by norm, and returns the largest difference.
func (c *adapterCase) grads(t *testing.T) (off float64, worst string) {
	ckpt, err := checkpoint.OpenAt(c.from)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ckpt.Close() }()
	sizes, err := plan.ReadModel(ckpt)
	if err != nil {
		t.Fatal(err)
	}
	adapted, err := trained.OpenAdapted(ckpt, c.initial, &sizes)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = adapted.Close() }()
	model, err := stages.NewModel(sizes)
	if err != nil {
		t.Fatal(err)
	}
	load, err := adapted.Source(ckpt, model)
	if err != nil {
		t.Fatal(err)
	}
	got := c.gradsOf(t, model, load)
	// Written as a directory, the gradients have PEFT's names and shapes.
	dir := filepath.Join(t.TempDir(), "grads")
	if err := peft.Write(t.Context(), dir, peft.Output{Model: model, Values: func(p *stages.Param) ([]float32, error) {
		return got[p.Name], nil
	}}); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Open(filepath.Join(dir, peft.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	compared, largest := make(map[string][]float64), 0.0
	for _, name := range c.expected.Names() {
		if of, ok := strings.CutPrefix(name, "grad."); ok {
			want := wideOf(tensorOf(t, c.expected, name))
			compared[strings.TrimSuffix(of, ".weight")] = want
			largest = max(largest, norm(want, nil))
		}
	}
	for _, of := range slices.Sorted(maps.Keys(compared)) {
		name := "base_model.model." + of
		if _, ok := f.Info(name); !ok {
			name += ".weight"
		}
		if _, ok := f.Info(name); !ok {
			t.Errorf("there is no gradient of %s", of)
			continue
		}
		want := compared[of]
		if d := norm(want, wideOf(tensorOf(t, f, name))) / max(norm(want, nil), 1e-3*largest); d > off || math.IsNaN(d) {
			off, worst = d, of
		}
	}
	return off, worst
}

func wideOf(values []float32) (wide []float64) {
	for _, v := range values {
		wide = append(wide, float64(v))
	}
	return wide
}

func tensorOf(t *testing.T, f *safetensors.File, name string) []float32 {
	t.Helper()
	b, err := f.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := safetensors.Float32s("F32", b)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// gradsOf returns the gradients of the mean loss of the first step, by the names of the parameters.
func (c *adapterCase) gradsOf(t *testing.T, model *stages.Model, load stages.Source) map[string][]float32 {
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	s := dev.NewStream("grads")
	st, err := stages.NewStage(model, s, []stages.ChunkSpec{{Last: len(model.Symbols())}},
		stages.Options{Optimizer: stages.Optimizer{Name: stages.AdamW, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}})
	if err == nil {
		err = st.Load(load, false)
	}
	if err != nil {
		t.Fatal(err)
	}
	mb := stages.Microbatch{Step: 1, Sequences: adapterSequences, Positions: adapterContext, Train: true}
	for _, at := range c.windows[:adapterSequences] {
		for i := range int64(adapterContext) {
			mb.Tokens, mb.Targets = append(mb.Tokens, int32(c.tokens[at+i])), append(mb.Targets, int32(c.tokens[at+i+1]))
		}
	}
	record := func(f func(l *tensorops.List)) {
		t.Helper()
		l := s.NewList()
		f(l)
		if err := tensorops.Run(s, l); err != nil {
			t.Fatal(err)
		}
	}
	record(st.ClearGrads)
	record(func(l *tensorops.List) { st.Forward(l, 0, &mb, tensorops.Tensor{}) })
	_, count := st.Loss(0, mb.Index)
	record(func(l *tensorops.List) { st.Backward(l, 0, mb.Index, tensorops.Tensor{}) })
	var saved []stages.Saved
	record(func(l *tensorops.List) { saved = st.Grads(l) })
	got := make(map[string][]float32) // a tied weight's uses added
	for _, one := range saved {
		if got[one.Name] == nil {
			got[one.Name] = make([]float32, len(one.Data))
		}
		for i, v := range one.Data {
			got[one.Name][i] += v / float32(count)
		}
	}
	return got
}

// export writes the adapter and the merged model, and the logits that Troupe computes with the run, which are also PEFT's.
func (c *adapterCase) export(t *testing.T) {
	adapter, merged := filepath.Join(c.dir, "adapter"), filepath.Join(c.dir, "merged")
	for _, o := range []troupe.ExportOptions{{From: c.run, To: adapter}, {From: c.run, To: merged, Merge: true}} {
		if _, err := troupe.Export(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	logits := c.logits(t, c.run, "")
	if off := largestOff(logits, tensorOf(t, c.expected, "logits")); off > 1e-3 { // after 50 steps
		t.Errorf("the trained adapter's logits are off by %.1e", off)
	}
	for name, again := range map[string][]float32{"--adapter": c.logits(t, c.from, adapter), "merged": c.logits(t, merged, "")} {
		if off := largestOff(again, logits); off > logitsLimit {
			t.Errorf("%s: logits off by %.1e", name, off)
		}
	}
	var file strings.Builder
	shape := []int{adapterContext, len(logits) / adapterContext}
	if err := safetensors.Write(&file, nil, []safetensors.Tensor{safetensors.F32("logits", shape, logits)}); err != nil {
		t.Fatal(err)
	}
	testrun.Write(t, filepath.Join(c.dir, "logits.safetensors"), file.String())
}

// logits are those after each of the first tokens.
func (c *adapterCase) logits(t *testing.T, from, adapter string) (all []float32) {
	m, err := trained.Open(trained.Options{From: from, Adapter: adapter, Threads: 1}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	st, err := m.Stage(m.Device.NewStream("logits"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	dec, err := stages.NewDecoder(st)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dec.Add(adapterContext)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, id := range c.tokens[:adapterContext] {
		logits, err := d.Next([]int32{int32(id)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, logits...)
	}
	return all
}
