package device

import (
	"slices"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// spread says of each rank of a configuration which GPU it is on; of one on the CPU it says 0.
// A rank whose device names a GPU gets it. The other ranks are spread evenly over the GPUs that no rank names, or over all GPUs if
// there are no others, in order, so that neighbors share a GPU. GPUs whose kernels differ from the first one's are left out, since
// their bits would differ.
func spread(cfg *config.Config) (map[int]int, error) {
	at := make(map[int]int)
	var free, named []int // ranks without a number; numbers
	for r := range cfg.Ranks() {
		stage := cfg.StageOf(r)
		at[r] = max(0, cfg.Device.OrdinalOf(stage))
		switch {
		case KindOf(cfg, stage) != CUDA:
		case cfg.Device.OrdinalOf(stage) < 0:
			free = append(free, r)
		case !slices.Contains(named, at[r]):
			named = append(named, at[r])
		}
	}
	if len(free) == 0 {
		return at, nil
	}
	found, err := cuda.Find(CUDAOptions())
	if err != nil {
		return nil, cfg.Errorf(Key(cfg), "%w", err)
	}
	for i, ordinal := range spreadOver(len(free), found, named) {
		at[free[i]] = ordinal
	}
	return at, nil
}

// spreadOver gives n ranks GPUs of those that were found, of which there is one at least.
func spreadOver(n int, found []cuda.Found, named []int) []int {
	var alike, others []int
	for _, g := range found {
		if g.Path != found[0].Path {
			continue
		}
		alike = append(alike, g.Ordinal)
		if !slices.Contains(named, g.Ordinal) {
			others = append(others, g.Ordinal)
		}
	}
	if len(others) > 0 {
		alike = others
	}
	ordinals := make([]int, n)
	for i := range ordinals {
		ordinals[i] = alike[i*min(n, len(alike))/n]
	}
	return ordinals
}

// Key returns the config key that selects the ranks' devices.
func Key(cfg *config.Config) string {
	if len(cfg.Device.Ranks) > 0 {
		return "device.ranks"
	}
	return "device.kind"
}
