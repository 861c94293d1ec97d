package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
)

// TestSamplesHeldOut: samples of an [[eval]] that data.train matches, too, are not trained on, and the set still has them.
func TestSamplesHeldOut(t *testing.T) {
	dir := t.TempDir()
	for name, rows := range map[string]string{"a.csv": "1,0\n2,1\n", "b.csv": "3,0\n4,1\n5,0\n", "c.csv": "6,1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x,y\n"+rows), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	cfg, err := config.Parse("c.toml", fmt.Appendf(nil, `model.family = "mlp"
data.format = "csv"
data.label = "y"
data.classes = 2
data.train = [%q, %q]
data.val = [%q]
[[eval]]
name = "a"
files = [%q]
`, at("a.csv"), at("b.csv"), at("c.csv"), at("a.csv")), nil, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	c, err := loadSamples(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	closed := func(d *Data) {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	defer closed(c)
	if n := c.Samples.Train.Len(); n != 3 || c.Samples.Val.Len() != 1 {
		t.Errorf("%d samples to train on and %d to validate on, want the 3 of b.csv and the 1 of c.csv", n, c.Samples.Val.Len())
	}
	if len(c.Excluded) != 1 {
		t.Errorf("left out %q, want a.csv", c.Excluded)
	}
	set := EvalSet{"a", &Data{}}
	if err := set.loadSamples(c, configOf(cfg, cfg.Eval[0]), func(data.Identity) error { return nil }); err != nil {
		t.Fatal(err)
	}
	defer closed(set.Data)
	if n := set.Data.Samples.Val.Len(); n != 2 {
		t.Errorf("the set has %d samples, want 2", n)
	}
}
