package exampletest

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/plan"
)

// Memory trains under several layouts and compares the memory of tensors with the plan's forecast, which may be off
// by a share.
func Memory(t *testing.T, file string, within float64, layouts []Layout, more ...string) {
	t.Helper()
	for _, l := range layouts {
		t.Run(l.Name, func(t *testing.T) {
			out, keys := filepath.Join(t.TempDir(), "out"), append(more, l.Sets...)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := config.Parse(file, text, append(Keys(out, Half), keys...), nil)
			if err != nil {
				t.Fatal(err)
			}
			p, err := plan.Resolve(cfg, nil)
			if err != nil {
				t.Fatal(err)
			}
			forecast, err := p.AllTensorBytes()
			if err != nil {
				t.Fatal(err)
			}
			took := Train(t, file, out, Half, keys...).Memory("cpu").Taken
			if off := float64(took)/float64(forecast) - 1; math.Abs(off) > within {
				t.Errorf("tensors took %d bytes, %.1f %% off the forecast of %d", took, 100*off, forecast)
			} else {
				t.Logf("tensors took %d bytes, %.1f %% off the forecast", took, 100*off)
			}
		})
	}
}
