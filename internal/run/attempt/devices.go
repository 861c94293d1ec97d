package attempt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// devices are the devices of the ranks: in this process, or those of workers.
type devices struct {
	set      *device.Set  // nil: in other processes
	workers  plan.Workers // nil: here
	closed   bool
	auto     string // why device.kind = "auto" chose its device; "": not used
	replaced []int  // ranks that get their state from others, in an attempt that continues another one
	loaded   func() // says that all of them have it
	// ofRanks returns the peak tensor memory of each rank as workers report it; nil: not known.
	ofRanks func() []int64
}

// openDevices opens the devices and resolves device.kind = "auto". noGPU is why "auto" must not be a GPU; "": it may
// be one. The configuration is returned after an error, too.
func openDevices(ctx context.Context, cfg *config.Config, o Options, noGPU string) (*config.Config, *devices, error) {
	cfg = cfg.WithAutoGPU(false)
	if o.Hosts != nil { // with workers, "auto" is the CPU: ranks are placed by what workers offer
		workers, err := o.Hosts.Choose(ctx, cfg, o.Wait)
		if err != nil {
			return cfg, nil, err
		}
		return cfg, &devices{workers: workers}, nil
	}
	auto := noGPU
	if noGPU == "" {
		var gpu bool
		gpu, auto = device.ResolveAuto(ctx, cfg, true)
		cfg = cfg.WithAutoGPU(gpu)
	}
	set, err := device.OpenSet(cfg)
	if err != nil {
		return cfg, nil, err
	}
	return cfg, &devices{set: set, auto: auto}, nil
}

func (c *devices) close() {
	switch {
	case c.closed:
	case c.set != nil:
		c.set.Close()
	default:
		c.workers.Release()
	}
	c.closed = true
}

// path names the kernels.
func (c *devices) path() string {
	if c.set != nil {
		return c.set.Path()
	}
	return c.workers.Path()
}

// describe fills in Info.
func (c *devices) describe(i *event.Info) {
	i.Kernels, i.Auto = c.path(), c.auto
	if c.set != nil {
		i.Device, i.Threads = c.set.Names(), c.set.Threads()
	} else {
		i.Device, i.Threads = c.workers.Devices(), c.workers.Threads()
	}
}

// checkMemory rejects a model that does not fit. Workers check their own memory.
func (c *devices) checkMemory(p *plan.Plan) (inPlace string, err error) {
	if c.set == nil {
		return "", nil
	}
	p.SetKernels(c.set.GPUPath())
	return p.CheckMemory(c.set.GPUs())
}

func (c *devices) memoryByStage() map[string]int64 {
	if c.set == nil {
		return nil
	}
	return c.set.TakenBy()
}

// groups returns the groups of the ranks that this process computes.
func (c *devices) groups(p *plan.Plan) plan.Groups {
	if c.set == nil {
		return plan.NoGroups{}
	}
	return p.LocalGroups()
}

// place sets where the stages are.
func (c *devices) place(ctx context.Context, s *actors.Spec, a plan.Assignment) error {
	if c.set != nil {
		s.Devices = c.set.OfRanks()
		return nil
	}
	r, err := c.workers.Assign(ctx, a)
	if err != nil {
		return err
	}
	c.ofRanks, c.replaced, c.loaded = r.Memory, r.Replaced, r.Loaded
	s.Shadows, s.Keep = r.Shadows.At, func(lost []int) error {
		if a.Rescue { // it has only saved the state of the ranks that it was to replace
			lost = slices.Concat(lost, r.Replaced)
		}
		if r.Left != nil {
			left := r.Left()
			lost = slices.DeleteFunc(slices.Clone(lost), func(rank int) bool { return slices.Contains(left, rank) })
		}
		return a.Plan.Keeps(lost, r.Held)
	}
	s.Attempt, s.Hosts, s.Shares, s.System, s.Attach, s.Detach, s.Clock, s.CutLinks = r.Attempt, r.Hosts, r.Shares, r.System, r.Attach,
		r.Detach, r.Clock, r.CutLinks
	return nil
}

// renew replaces the workers that have failed.
func (c *devices) renew(ctx context.Context, wait time.Duration) (rescue bool, err error) {
	old, ok := c.workers.(plan.Renewer)
	if !ok {
		return false, fmt.Errorf("%w: these workers cannot be replaced", plan.ErrNoHolder)
	}
	workers, rescue, err := old.Renew(ctx, wait)
	if err != nil {
		return false, err
	}
	c.workers = workers
	return rescue, nil
}

// watch connects the workers with the run.
func (c *devices) watch(r *actors.Run) {
	if c.workers != nil {
		c.workers.Watch(r)
	}
}
