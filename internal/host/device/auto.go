package device

import (
	"context"
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/config"
)

// auto is the kind that takes a GPU where one is there that computes rightly.
const auto = "auto"

// ResolveAuto decides whether device.kind = "auto" is a GPU on this machine, for ranks in this
// process, and says so in a line; "" where there is nothing to say: nothing asks for it, or no GPU
// is there. A GPU is taken that has passed a self-test: of the table of cases that every device is
// held to, against the float64 oracle. It is made when test allows it and no verdict is kept of
// this GPU, driver and program. The answer is for Config.WithAutoGPU.
//
// It never fails: if anything is wrong with the GPU, it chooses the CPU.
func ResolveAuto(ctx context.Context, cfg *config.Config, test bool) (gpu bool, says string) {
	if !wantsGPU(cfg) {
		return false, ""
	}
	c, err := findCandidate()
	if err != nil {
		return false, ""
	}
	v, kept := c.kept()
	switch {
	case kept:
	case !test:
		return false, c.untested()
	default:
		v = c.test(ctx)
	}
	return v.Passed, c.says(v, kept)
}

// wantsGPU reports whether ranks are on "auto", and nothing asks for what only the CPU has.
func wantsGPU(cfg *config.Config) bool {
	asks := cfg.Device.Kind == auto
	if len(cfg.Device.Ranks) > 0 {
		asks = slices.Contains(cfg.Device.Ranks, auto)
	}
	// Kernels and threads are the CPU's, Muon and a narrow state are computed there alone, and the self-test leaves contexts in parts out.
	return asks && cfg.Device.Kernels == auto && cfg.Device.Threads == 0 && cfg.Parallel.Context == 1 &&
		!cfg.Muon() && !cfg.NarrowState()
}

// AutoState says which device device.kind = "auto" would choose on this machine; "": there is no GPU.
func AutoState() string {
	c, err := findCandidate()
	if err != nil {
		return ""
	}
	if v, ok := c.kept(); ok {
		return c.says(v, true)
	}
	return c.untested()
}

func (c candidate) untested() string {
	return fmt.Sprintf("%v has not been tested yet; the first run with device.kind = \"auto\" tests it", c)
}

// says tells a verdict.
func (c candidate) says(v verdict, kept bool) string {
	switch {
	case v.Passed && kept:
		return fmt.Sprintf("using %v, which passed a self-test of %d cases on %s", c, v.Cases, v.When.Format("2006-01-02"))
	case v.Passed:
		return fmt.Sprintf("using %v after a self-test of %d cases in %.1f s", c, v.Cases, v.Seconds)
	case kept && !v.When.IsZero():
		return fmt.Sprintf("not using %v, which failed its self-test on %s: %s; using the CPU", c, v.When.Format("2006-01-02"), v.Why)
	default:
		return fmt.Sprintf("not using %v: %s; using the CPU", c, v.Why)
	}
}
