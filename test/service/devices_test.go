package service

import (
	"errors"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// TestMissingGPU: one that is asked for and not there is an error at the key that asks.
func TestMissingGPU(t *testing.T) {
	t.Setenv("TROUPE_LIBCUDA", "/nowhere/libcuda.so")
	for _, c := range []struct {
		sets []string
		at   string
	}{
		{[]string{"device.kind=cuda"}, "--set device.kind=cuda: device.kind: "},
		{[]string{`device.ranks=["cpu", "cuda", "cpu"]`}, `--set device.ranks=["cpu", "cuda", "cpu"]: device.ranks: `},
		{[]string{`device.ranks=["cuda", "cuda", "cuda"]`}, `--set device.ranks=["cuda", "cuda", "cuda"]: device.ranks: `},
	} {
		cfg, err := config.Parse("ranks.toml", []byte("data.train = ['testdata/troupe.txt']\npipeline.stages = 3"),
			append(c.sets, "run.out="+t.TempDir()), nil)
		if err != nil {
			t.Fatal(err)
		}
		run, err := troupe.Start(t.Context(), cfg, troupe.Options{})
		if err == nil {
			run.Kill()
			_, err = run.Wait()
			t.Fatalf("%q: it began, and ended with %v", c.sets, err)
		}
		for _, err := range []error{err, troupe.Check(cfg)} {
			if !errors.Is(err, cuda.ErrUnavailable) || !strings.HasPrefix(err.Error(), c.at) {
				t.Errorf("%q: error %v, want ErrUnavailable at %s", c.sets, err, c.at)
			}
		}
	}
}
