package troupe

import (
	"context"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/tensorops"
)

// ErrNoWorkers: the processes that a run over a cluster needs are not there. When they are,
// it can go on.
var ErrNoWorkers = plan.ErrNoRoom

// computers are what a run's ranks compute on: devices of this process, or others.
type computers struct {
	set     *device.Set  // nil: in other processes
	workers plan.Workers // nil: here
	closed  bool
	auto    string // what device.kind = "auto" has come to; "": nothing to say
	// ofRanks is what other processes tell of the most tensor memory of each rank at a time; nil: nothing.
	ofRanks func() []int64
}

// openComputers opens them. leftOut says why no GPU is to be taken where "auto" stands; "": if there
// is one, it may be.
func openComputers(ctx context.Context, cfg *config.Config, hosts plan.Hosts, wait time.Duration, leftOut string) (*computers, error) {
	var c computers
	var err error
	cfg.SetAutoGPU(false)
	if hosts == nil {
		// Ranks in other processes are placed by what these offer: there "auto" is the CPU.
		if c.auto = leftOut; leftOut == "" {
			c.auto = device.ResolveAuto(ctx, cfg, true)
		}
		c.set, err = device.OpenSet(cfg)
	} else {
		c.workers, err = hosts.Choose(ctx, cfg, wait)
	}
	if err != nil {
		return nil, err
	}
	return &c, nil
}

func (c *computers) close() {
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
func (c *computers) path() string {
	if c.set != nil {
		return c.set.Path()
	}
	return c.workers.Path()
}

// describe fills in what people read of them.
func (c *computers) describe(i *Info) {
	i.Kernels, i.Auto = c.path(), c.auto
	if c.set != nil {
		i.Device, i.Threads = c.set.Names(), c.set.Threads()
	} else {
		i.Device, i.Threads = c.workers.Devices(), c.workers.Threads()
	}
}

// checkMemory refuses a model that does not fit. Other processes look for themselves.
func (c *computers) checkMemory(p *plan.Plan) (inPlace string, err error) {
	if c.set == nil {
		return "", nil
	}
	p.SetKernels(c.set.GPUPath())
	return p.CheckMemory(c.set.GPUs())
}

func (c *computers) memory(kind string) tensorops.MemoryStats {
	if c.set == nil {
		return tensorops.MemoryStats{}
	}
	return c.set.Memory(kind)
}

func (c *computers) memoryByStage() map[string]int64 {
	if c.set == nil {
		return nil
	}
	return c.set.TakenBy()
}

// groups are those of the ranks that this process computes.
func (c *computers) groups(p *plan.Plan) plan.Groups {
	if c.set == nil {
		return plan.NoGroups{}
	}
	return p.LocalGroups()
}

// place says where a run's stages are.
func (c *computers) place(ctx context.Context, s *actors.Spec, a plan.Assignment) error {
	if c.set != nil {
		s.Devices = c.set.OfRanks()
		return nil
	}
	r, err := c.workers.Assign(ctx, a)
	if err != nil {
		return err
	}
	c.ofRanks = r.Memory
	s.Attempt, s.Hosts, s.Shares, s.System, s.Attach, s.Detach, s.Clock, s.CutLinks = r.Attempt, r.Hosts, r.Shares, r.System, r.Attach, r.Detach, r.Clock, r.CutLinks
	return nil
}

// watch lets whoever has the stages tell the run of them.
func (c *computers) watch(r *actors.Run) {
	if c.workers != nil {
		c.workers.Watch(r)
	}
}

// restarts counts how often a run was begun again since its last new checkpoint.
type restarts struct {
	most, done int
	step       int64 // of that checkpoint
}

// allows reports whether a run that ended with err is to go on by itself, from the
// checkpoint of a step.
func (r *restarts) allows(err error, step int64) bool {
	if !plan.IsLost(err) {
		return false
	}
	if step > r.step {
		r.step, r.done = step, 0
	}
	r.done++
	return r.done <= r.most
}

// exhausted says so of a run that may not go on.
func (r *restarts) exhausted(err error) error {
	if r.done <= r.most || r.done == 0 {
		return err
	}
	return fmt.Errorf("%w (restarted %d times since the checkpoint of step %d, which is cluster.max_restarts)", err, r.most, r.step)
}
