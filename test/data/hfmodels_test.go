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
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// The largest differences from transformers, both in float32.
const (
	logitsLimit = 1e-5 // of the largest logit
	gradsLimit  = 1e-4 // of a gradient, by norm
)

// hfModel is a model that testdata/hf/models.py has written: what transformers computes with it.
type hfModel struct {
	Family            string
	Sequences         int
	Tokens, Targets   []int32
	Starts            []int32 // of packed documents; none: the family cannot pack
	PackedTargets     []int32 `json:"packed_targets"`
	Loss              float64
	Prompt, Generated []int32
	Balance           []float64          // the balance loss of each layer with experts
	Rounding          map[string]float64 // by which transformers' own gradients differ from those in float64, by norm
	Gap               float64            // by which greedy generation's choices are clear, of the largest logit

	dir      string // of what is expected
	from     string // of the model
	config   stages.Config
	expected *safetensors.File

	ours, theirs fromExact // Troupe's numbers and transformers', both in float32
}

// TestModelsInTransformers is part of make check-hf: for every entry of testdata/hf/models.py the logits after each prefix,
// the loss, the gradients of all weights and greedy generation with a cache are those of transformers, and transformers
// loads the export. TROUPE_MODELS names some of the entries; without it, the test takes all.
func TestModelsInTransformers(t *testing.T) {
	python := os.Getenv("TROUPE_PYTHON")
	if python == "" {
		t.Skip("make check-hf sets TROUPE_PYTHON, a Python with torch and transformers")
	}
	dir := t.TempDir()
	models := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", "hf", "models.py")}, args...)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("models.py %s: %v\n%s%s", args[0], err, out, errs.String())
		}
		return strings.TrimSpace(string(out))
	}
	models(append([]string{"write", dir}, strings.Fields(os.Getenv("TROUPE_MODELS"))...)...)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no models in %s: %v", dir, err)
	}
	seen := make(map[string]bool)
	var magnified []*hfModel // models that magnify rounding
	for _, at := range names {
		t.Run(filepath.Base(at), func(t *testing.T) {
			m := readHFModel(t, at)
			seen[m.Family] = true
			m.compare(t)
			m.variants(t)
			m.export(t)
			if m.magnifies() {
				magnified = append(magnified, m)
			}
		})
	}
	compareMagnified(t, magnified)
	for _, name := range stages.LanguageFamilies() {
		if !seen[name] && os.Getenv("TROUPE_MODELS") == "" {
			t.Errorf("testdata/hf/models.py has no model of family %q", name)
		}
	}
	t.Logf("transformers reads what Troupe writes:\n%s", models("read", dir))
}

func readHFModel(t *testing.T, dir string) *hfModel {
	t.Helper()
	m := &hfModel{dir: dir, from: dir}
	if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(dir, "expected.json"))), m); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(stages.LanguageFamilies(), m.Family) {
		t.Skipf("there is no family %q yet", m.Family)
	}
	var err error
	if m.expected, err = safetensors.Open(filepath.Join(dir, "expected.safetensors")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.expected.Close() })
	whole := filepath.Join(dir, "whole")
	if _, err := os.Stat(whole); err == nil {
		m.from = filepath.Join(dir, "text")
		if _, err := troupe.Export(t.Context(), troupe.ExportOptions{From: whole, To: m.from}); err == nil ||
			!strings.Contains(err.Error(), "--text-only") {
			t.Errorf("a model for images and text is exported: %v", err)
		}
		if _, err := troupe.Export(t.Context(), troupe.ExportOptions{From: whole, To: m.from, TextOnly: true}); err != nil {
			t.Fatal(err)
		}
	}
	if m.config, err = stages.ParseHF([]byte(testrun.Read(t, filepath.Join(m.from, "config.json")))); err != nil {
		t.Fatal(err)
	}
	if need := len(m.Prompt) + len(m.Generated); need > m.config.Positions() {
		t.Errorf("the model has %d positions, but %d are needed", m.config.Positions(), need)
	}
	if m.from != dir {
		return m
	}
	old, err := stages.ParseHF([]byte(testrun.Read(t, filepath.Join(dir, "config4.json"))))
	if err != nil || !reflect.DeepEqual(old, m.config) {
		t.Errorf("with the keys of release 4 the model is %+v, %v;\nwith those of release 5 %+v", old, err, m.config)
	}
	return m
}

// want is a tensor that transformers has computed.
func (m *hfModel) want(t *testing.T, name string) []float32 {
	t.Helper()
	b, err := m.expected.Bytes(name)
	if err != nil {
		t.Fatal(err)
	}
	values, err := safetensors.Float32s("F32", b)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// stage loads the directory's weights, as training does.
func (m *hfModel) stage(t *testing.T, dev tensorops.Device) (*stages.Stage, tensorops.Stream) {
	t.Helper()
	ckpt, err := checkpoint.OpenAt(m.from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ckpt.Close() })
	model, err := stages.NewModel(m.config)
	if err == nil {
		err = plan.CheckWeights(ckpt, model, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := dev.NewStream("compare")
	st, err := stages.NewStage(model, s, []stages.ChunkSpec{{Last: len(model.Symbols())}},
		stages.Options{Optimizer: stages.Optimizer{Name: stages.AdamW, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8}})
	if err == nil {
		err = st.Load(plan.Weights(ckpt), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	return st, s
}

func (m *hfModel) compare(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	st, s := m.stage(t, dev)
	ownLogits := m.logits(t, st)
	logits := largestOff(ownLogits, m.want(t, "logits"))
	loss, own := m.grads(t, st, s)
	m.compareBalance(t, st, s)
	grads, worst := m.compareGrads(t, own, "grad.")
	m.comparePacked(t, st, s)
	generated, tokens := m.generate(t, st)
	cached := largestOff(generated, m.want(t, "generated"))
	ours, theirs := m.compareExact(t, ownLogits, generated, own)
	t.Logf("logits off by %.1e, gradients of %d weights by at most %.1e (%s), loss by %.1e; %d of %d tokens of greedy generation equal, "+
		"their logits off by %.1e (choices clear by %.1e)",
		logits, grads.count, grads.off, worst, loss, tokens, len(m.Generated), cached, m.Gap)
	t.Logf("from float64: Troupe %v; transformers %v", ours, theirs)
	m.ours, m.theirs = ours, theirs
	if loss > logitsLimit || tokens != len(m.Generated) || !m.magnifies() && (logits > logitsLimit || cached > logitsLimit || grads.loose) {
		t.Errorf("beyond the limits of %g of the largest logit, %g of a gradient, and equal tokens", logitsLimit, gradsLimit)
	}
}

// largestOff is the largest difference, of the largest number.
func largestOff(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var off, size float64
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if math.IsNaN(d) {
			return d
		}
		off, size = max(off, d), max(size, math.Abs(float64(w)))
	}
	return off / size
}

// logits gives the decoder each prefix of the first sequence at once.
func (m *hfModel) logits(t *testing.T, st *stages.Stage) (all []float32) {
	for n := 1; n <= len(m.Tokens)/m.Sequences; n++ {
		dec, err := stages.NewDecoder(st)
		if err != nil {
			t.Fatal(err)
		}
		d, err := dec.Add(n)
		if err != nil {
			t.Fatal(err)
		}
		logits, err := d.Next(m.Tokens[:n])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, logits...)
		d.Close()
	}
	return all
}

type gradsOff struct {
	count int
	off   float64 // largest difference
	loose bool    // a gradient differs by more than its limit
}

// grads runs a forward and a backward on all sequences. It returns how far the loss is off, and the gradients of the
// tensors in files.
func (m *hfModel) grads(t *testing.T, st *stages.Stage, s tensorops.Stream) (loss float64, grads map[string][]float64) {
	mb := stages.Microbatch{Step: 1, Sequences: m.Sequences, Positions: len(m.Tokens) / m.Sequences, Tokens: m.Tokens, Train: true}
	for _, id := range m.Targets {
		if id < 0 {
			id = tensorops.IgnoreTarget
		}
		mb.Targets = append(mb.Targets, id)
	}
	sum, count, grads := m.gradsOf(t, st, s, mb)
	for _, g := range grads {
		for i := range g {
			g[i] /= count
		}
	}
	return math.Abs(sum/count-m.Loss) / m.Loss, grads
}

// gradsOf runs a forward and a backward on a microbatch. It returns the loss, the number of targets, and the gradients of the
// tensors in files.
func (m *hfModel) gradsOf(t *testing.T, st *stages.Stage, s tensorops.Stream, mb stages.Microbatch) (sum, count float64,
	grads map[string][]float64) {
	t.Helper()
	run := func(record func(l *tensorops.List)) {
		t.Helper()
		l := s.NewList()
		record(l)
		if err := tensorops.Run(s, l); err != nil {
			t.Fatal(err)
		}
	}
	run(st.ClearGrads)
	run(func(l *tensorops.List) { st.Forward(l, 0, &mb, tensorops.Tensor{}) })
	sum, count = st.Loss(0, mb.Index)
	run(func(l *tensorops.List) { st.Backward(l, 0, mb.Index, tensorops.Tensor{}) })
	var saved []stages.Saved
	run(func(l *tensorops.List) { saved = st.Grads(l) })
	got := make(map[string][]float64) // a tied weight's uses added
	for _, one := range saved {
		if got[one.Name] == nil {
			got[one.Name] = make([]float64, len(one.Data))
		}
		for i, v := range one.Data {
			got[one.Name][i] += float64(v)
		}
	}
	return sum, count, m.storedGrads(t, got)
}

// compareGrads also returns the name of the weight whose gradient differs most. The names in the file have a prefix.
func (m *hfModel) compareGrads(t *testing.T, got map[string][]float64, prefix string) (grads gradsOff, worst string) {
	want, largest := make(map[string][]float64), 0.0
	for _, name := range m.expected.Names() {
		if of, ok := strings.CutPrefix(name, prefix); ok {
			want[of] = widened(m.want(t, name))
			largest = max(largest, norm(want[of], nil))
		}
	}
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		t.Fatalf("there are gradients of\n%q, but transformers has those of\n%q", g, w)
	}
	for name, w := range want {
		// Where all cancels out (a bias of keys without positions), rounding is left: it counts beside the largest gradient.
		size := max(norm(w, nil), 1e-3*largest)
		if off := norm(w, got[name]) / size; off > grads.off || math.IsNaN(off) {
			grads.off, worst = off, name
		}
		// Where transformers' own rounding is that large, a comparison with it cannot be closer.
		grads.loose = grads.loose || !(norm(w, got[name])/size <= max(gradsLimit, 3*m.Rounding[name]))
	}
	grads.count = len(want)
	return grads, worst
}

// storedGrads returns the gradients of the tensors in files.
func (m *hfModel) storedGrads(t *testing.T, of map[string][]float64) map[string][]float64 {
	t.Helper()
	model, err := stages.NewModel(m.config)
	if err != nil {
		t.Fatal(err)
	}
	joined := make(map[string][]float64)
	for _, p := range model.Params {
		if g, ok := of[p.Name]; ok { // a constant has none
			for _, part := range p.StoredParts() {
				if joined[part.Name] == nil {
					n := 1
					for _, d := range part.Shape {
						n *= d
					}
					joined[part.Name] = make([]float64, n)
				}
				stages.Place(part, joined[part.Name], g)
			}
		}
	}
	return joined
}

// norm is that of w-minus; nil counts as zeros.
func norm(w, minus []float64) float64 {
	sum := 0.0
	for i, d := range w {
		if minus != nil {
			d -= minus[i]
		}
		sum += d * d
	}
	return math.Sqrt(sum)
}

// generate generates greedily, token by token. It returns the logits of all steps, and the number of tokens before the
// first other one than transformers'.
func (m *hfModel) generate(t *testing.T, st *stages.Stage) (all []float32, equal int) {
	dec, err := stages.NewDecoder(st)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dec.Add(len(m.Prompt) + len(m.Generated))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	next := m.Prompt
	for _, want := range m.Generated {
		logits, err := d.Next(next)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, logits...)
		best := 0
		for i, v := range logits {
			if v > logits[best] {
				best = i
			}
		}
		if int32(best) == want && equal*len(logits) == len(all)-len(logits) {
			equal++
		}
		next = []int32{want} // so that one other token does not change the logits after it
	}
	return all, equal
}

// export writes the model as engine export does, and once more with the config.json of a model that Troupe has
// made itself.
func (m *hfModel) export(t *testing.T) {
	to, own := filepath.Join(m.dir, "exported"), filepath.Join(m.dir, "own")
	if _, err := troupe.Export(t.Context(), troupe.ExportOptions{From: m.from, To: to}); err != nil {
		t.Fatal(err)
	}
	text, err := m.config.HF()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := stages.ParseHF(text); err != nil || !reflect.DeepEqual(again, m.config) {
		t.Errorf("%+v\nis written as %s\nand read as %+v, %v", m.config, text, again, err)
	}
	testrun.Write(t, filepath.Join(own, "config.json"), string(text))
	if err := os.Link(filepath.Join(to, "model.safetensors"), filepath.Join(own, "model.safetensors")); err != nil {
		t.Fatal(fmt.Errorf("share the weights: %w", err))
	}
}
