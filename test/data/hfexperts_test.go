package data

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// balanceLimit is the largest difference of a balance loss from transformers, of the loss.
const balanceLimit = 1e-6

// compareBalance compares the balance loss of each layer with experts, of the pass that grads has run.
func (m *hfModel) compareBalance(t *testing.T, st *stages.Stage, s tensorops.Stream) {
	t.Helper()
	l := s.NewList()
	read := st.RouterStats(l)
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, r := range read() {
		got = append(got, r.AuxLoss/r.Rows)
	}
	if m.Balance == nil && m.config.Experts.Router.Sigmoid {
		return // transformers has no balance loss of sigmoids
	}
	if len(got) != len(m.Balance) {
		t.Fatalf("there are %d layers with experts, but transformers has %d", len(got), len(m.Balance))
	}
	off := 0.0
	for i, want := range m.Balance {
		off = max(off, math.Abs(got[i]-want)/want)
	}
	if len(got) > 0 {
		t.Logf("balance losses of %d layers off by at most %.1e", len(got), off)
	}
	if !(off <= balanceLimit) {
		t.Errorf("the balance losses are %g, want %g", got, m.Balance)
	}
}

// variants compares the weights of the same model in other files with those in the first: stacked experts as transformers 5 holds
// them, and in MXFP4 as GPT-OSS is published. It also exports them.
func (m *hfModel) variants(t *testing.T) {
	t.Helper()
	for _, name := range []string{"stacked", "mxfp4"} {
		dir := filepath.Join(m.dir, name)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		c, err := stages.ParseHF([]byte(testrun.Read(t, filepath.Join(dir, "config.json"))))
		if err != nil || !reflect.DeepEqual(c, m.config) {
			t.Errorf("%s: %+v, %v;\nwant %+v", name, c, err, m.config)
		}
		want := m.weightsIn(t, m.from)
		same := func(dir string) {
			n := 0
			for p, values := range m.weightsIn(t, dir) {
				if n += len(values); !slices.Equal(values, want[p]) {
					t.Errorf("%s: %s has other weights", dir, p)
				}
			}
			t.Logf("%s: %d weights are equal", filepath.Base(dir), n)
		}
		same(dir)
		to := filepath.Join(m.dir, name+"-exported")
		if _, err := troupe.Export(t.Context(), troupe.ExportOptions{From: dir, To: to}); err != nil {
			t.Fatal(err)
		}
		same(to)
	}
}

// weightsIn reads all weights of a directory.
func (m *hfModel) weightsIn(t *testing.T, dir string) map[string][]float32 {
	t.Helper()
	ckpt, err := checkpoint.OpenAt(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ckpt.Close() }()
	model, err := stages.NewModel(m.config)
	if err == nil {
		err = plan.CheckWeights(ckpt, model, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	all, read := make(map[string][]float32), plan.Weights(ckpt)
	for _, p := range model.Params {
		all[p.Name] = make([]float32, p.Len())
		if err := read(p, "", all[p.Name]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}
