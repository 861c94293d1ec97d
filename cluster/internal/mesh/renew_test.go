package mesh_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

var (
	renewalSeeds = flag.Int("renewals.seeds", 12, "runs of TestRenewalsUnderFaults")
	renewalFirst = flag.Uint64("renewals.first", 1, "seed of its first run")
)

// dying is a run over a network that loses, repeats and delays messages. Each rank has a process of its own and a shadow with the next
// one. Processes die when some number of messages were sent, and the run continues on others.
type dying struct {
	t       *testing.T
	random  *rand.Rand
	network *transport.Memory
	all     []*process // the coordinator's first
	cuts    []int
	ahead   bool // post-validation
	clip    float64
	devices []tensorops.Device

	left atomic.Int64 // messages until the next death
	fire chan struct{}

	got       *outcome
	used      int   // processes that have or had ranks
	hosts     []int // by rank: the place of its process in all
	run       uuid.UUID
	deaths    int
	renewals  int
	restarts  int
	whileLost int // deaths while an attempt ends
}

var errDied = errors.New("its process has died")

func (d *dying) ranks() int { return len(d.cuts) + 1 }

func (d *dying) holder(rank int) int { return (rank + 1) % d.ranks() }

// keeps is plan.Keeps.
func (d *dying) keeps(lost []int) error {
	for _, rank := range lost {
		if slices.Contains(lost, d.holder(rank)) {
			return fmt.Errorf("ranks %d are lost, the shadow of rank %d too", lost, rank)
		}
	}
	return nil
}

// spec is that of every process, in an attempt that continues another one with c.
func (d *dying) spec(attempt uuid.UUID) actors.Spec {
	s := smallRun(d.t, d.ranks(), d.cuts, d.got)
	d.devices = append(d.devices, s.Device)
	s.Run, s.Attempt, s.Keep = d.run, attempt, d.keeps
	m, err := stages.NewModel(small)
	if err != nil {
		d.t.Fatal(err)
	}
	chunks := smallChunks(m, d.cuts)
	s.BuildShadow = func(rank int, st tensorops.Stream) (*stages.Shadow, error) {
		return stages.NewShadow(m, st, chunks[rank:rank+1], smallOptions)
	}
	for rank := range d.ranks() {
		s.Shadows = append(s.Shadows, d.holder(rank))
	}
	s.PostValidate, s.ClipNorm = d.ahead, d.clip
	return s
}

// begin begins an attempt. kept are the stages that are kept, by rank, and lost the ranks that get their state from their shadows.
func (d *dying) begin(c *actors.Carry, kept []*actors.Kept, lost []int) (*actors.Run, []*actors.Stages) {
	attempt := uuid.New()
	hosts := make([]string, d.ranks())
	for rank, at := range d.hosts {
		hosts[rank] = d.all[at].name
	}
	m, err := stages.NewModel(small)
	if err != nil {
		d.t.Fatal(err)
	}
	chunks := smallChunks(m, d.cuts)
	parts := make([]*actors.Stages, d.ranks())
	for rank, at := range d.hosts {
		s, weights := d.spec(attempt), actors.NewWeightReader()
		d.all[at].place(&s, hosts)
		if c != nil {
			s.Start.Step, s.Target = c.Target().Step, c.Target()
			if kept[rank] != nil {
				s.Adopt = []*actors.Kept{kept[rank]}
			}
		}
		if slices.Contains(lost, rank) {
			s.Build = func(rank int, st tensorops.Stream) (actors.Compute, error) {
				return smallStage(m, st, chunks[rank:rank+1], weights.OfShadow(d.holder(rank), rank), true)
			}
			s.Read = weights.Read
		}
		if parts[rank], err = actors.StartStages(s, boss, weights); err != nil {
			d.t.Fatal(err)
		}
	}
	s := d.spec(attempt)
	s.Carry = c
	s.Ready = func(read []int64) event.Event {
		for rank, bytes := range read {
			if replaced := slices.Contains(lost, rank); replaced != (bytes > 0) {
				d.t.Errorf("rank %d of those that are replaced, %d, has read %d bytes", rank, lost, bytes)
			}
		}
		return nil
	}
	d.all[0].place(&s, hosts)
	r, err := actors.Start(s)
	if err != nil {
		d.t.Fatal(err)
	}
	return r, parts
}

// die cuts a rank's process off, tells the run after a while, and returns when all of it is gone.
func (d *dying) die(r *actors.Run, parts []*actors.Stages, rank int) {
	p := d.all[d.hosts[rank]]
	for _, q := range d.all {
		if q != p {
			d.network.Block(p.name, q.name)
		}
	}
	d.deaths++
	time.Sleep(time.Duration(d.random.Int64N(int64(2 * time.Millisecond)))) // until it is noticed
	d.all[0].mesh.Forget(p.id)
	r.Lost([]int{rank}, errDied)
	parts[rank].Kill()
	closeKept(d.t, parts[rank].Kept()) // if it had ended before
}

// train trains to the end, through deaths.
func (d *dying) train() {
	start := func() (*actors.Run, []*actors.Stages) {
		d.got.reset()
		d.run, d.hosts = uuid.New(), nil
		for range d.ranks() {
			d.hosts = append(d.hosts, d.next())
		}
		return d.begin(nil, nil, nil)
	}
	r, parts := start()
	var loading []int // ranks that get their state from their shadows
	for {
		select {
		case <-d.fire:
		default:
		}
		most := int64(300)
		if loading == nil { // the first attempt fills all shadows
			most = 1000
		}
		d.left.Store(1 + d.random.Int64N(most))
		victims := d.victims()
		var lost []int
		if d.spare() >= 2+d.ranks() {
			select {
			case <-d.fire:
				for i, rank := range victims {
					if i > 0 {
						d.whileLost++
					}
					d.die(r, parts, rank)
					lost = append(lost, rank)
				}
			case <-r.Done():
			}
		}
		select {
		case <-r.Done():
		case <-time.After(time.Minute):
			d.hangs(r, parts)
		}
		out := r.Wait()
		kept := d.kept(parts, lost)
		switch {
		case out.Err == nil:
			return
		case !errors.Is(out.Err, errDied):
			d.t.Fatalf("after %d renewals: %v", d.renewals, out.Err)
		case out.Carry == nil && out.State.Step > 0 && d.keeps(lost) == nil:
			d.t.Fatalf("the stages are not kept after the loss of ranks %d at step %d: %v", lost, out.State.Step, out.Unkept)
		}
		dead := lost
		if out.Carry != nil {
			lost = d.without(loading, out.Carry, kept, lost)
		}
		if out.Carry == nil || d.keeps(lost) != nil {
			d.restarts++
			closeKept(d.t, kept)
			r, parts = start()
			loading = nil
			continue
		}
		for _, rank := range dead {
			d.hosts[rank] = d.next()
		}
		d.renewals++
		loading = lost
		r, parts = d.begin(out.Carry, kept, lost)
	}
}

// hangs fails the test with what all stages say, each in its own process, and ends them.
func (d *dying) hangs(r *actors.Run, parts []*actors.Stages) {
	text := fmt.Sprintf("%d deaths, %d renewals; %v", d.deaths, d.renewals, r.Status())
	for rank, p := range parts {
		text += fmt.Sprintf("\nstage %d at %s: %v", rank, d.all[d.hosts[rank]].name, p.Status())
	}
	r.Kill()
	for _, p := range parts {
		p.Kill()
	}
	d.t.Fatalf("the run does not end: %s", text)
}

// victims chooses the ranks whose processes die: one, or a second one while the attempt ends, rarely the holder of the first.
func (d *dying) victims() []int {
	all := d.random.Perm(d.ranks())
	if d.random.IntN(2) == 0 {
		return all[:1]
	}
	for _, second := range all[1:] {
		if two := []int{all[0], second}; d.keeps(two) == nil || d.random.IntN(8) == 0 {
			return two
		}
	}
	return all[:1]
}

// kept waits for the end of the other stages and returns what is kept of them.
func (d *dying) kept(parts []*actors.Stages, lost []int) []*actors.Kept {
	all := make([]*actors.Kept, d.ranks())
	for rank, p := range parts {
		if slices.Contains(lost, rank) {
			continue
		}
		select {
		case <-p.Done():
		case <-time.After(time.Minute):
			d.t.Fatalf("stage %d does not end:\n%v", rank, p.Status())
		}
		for _, k := range p.Kept() {
			all[rank] = k
		}
	}
	return all
}

// without returns the ranks that need their state from their shadows: those that are lost, and those that had to get it and have not said
// that they have. All others are kept.
func (d *dying) without(loading []int, c *actors.Carry, kept []*actors.Kept, lost []int) []int {
	all := slices.Clone(lost)
	for rank, k := range kept {
		switch {
		case slices.Contains(lost, rank):
		case slices.Contains(loading, rank) && slices.Contains(c.Unready(), rank):
			closeKept(d.t, kept[rank:rank+1])
			kept[rank], all = nil, append(all, rank)
		case k == nil:
			d.t.Fatalf("rank %d is not kept, after the loss of ranks %d at step %d", rank, lost, c.State().Step)
		}
	}
	return all
}

func closeKept(t *testing.T, all []*actors.Kept) {
	for _, k := range all {
		if k == nil {
			continue
		}
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}
}

// next takes a process that has never had ranks, and spare is how many there are.
func (d *dying) next() int {
	d.used++
	return d.used
}

func (d *dying) spare() int { return len(d.all) - 1 - d.used }

// undisturbed has the outcomes of runs that nothing disturbs.
type undisturbed struct {
	mu  sync.Mutex
	all map[string]*outcome
}

func (u *undisturbed) of(t *testing.T, cuts []int, clip float64) *outcome {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := fmt.Sprint(cuts, clip)
	if u.all[key] == nil {
		want := &outcome{}
		s := smallRun(t, len(cuts)+1, cuts, want)
		s.ClipNorm = clip
		alone, err := actors.Start(s)
		if err != nil {
			t.Fatal(err)
		}
		if out := alone.Wait(); out.Err != nil {
			t.Fatal(out.Err)
		}
		u.all[key] = want
	}
	return u.all[key]
}

// TestRenewalsUnderFaults: runs whose processes die at random moments, over a network that loses, repeats and delays messages, have the
// losses, norms, weights and optimizer state of an undisturbed run to the bit. Each step has one event. make check-faults has 1,000 seeds.
func TestRenewalsUnderFaults(t *testing.T) {
	wants := &undisturbed{all: make(map[string]*outcome)}
	var deaths, renewals, restarts, twice atomic.Int64
	// In groups: package testing holds what parallel tests have cleaned up until all tests of their group have ended.
	const group = 32
	for from := 0; from < *renewalSeeds; from += group {
		t.Run("seeds", func(t *testing.T) {
			for i := from; i < min(from+group, *renewalSeeds); i++ {
				seed := *renewalFirst + uint64(i)
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					t.Parallel()
					d := newDying(t, seed)
					want := wants.of(t, d.cuts, d.clip)
					d.train()
					d.network.SetFaults(seed, transport.Faults{})
					if !slices.Equal(d.got.figures, want.figures) {
						t.Errorf("after %d renewals the figures are %x, undisturbed %x", d.renewals, d.got.figures, want.figures)
					}
					sameWeights(t, d.got.saved, want.saved)
					for _, one := range d.devices {
						if n := one.Memory().InUse; n != 0 {
							t.Errorf("%d bytes of a device are in use after the end", n)
						}
					}
					deaths.Add(int64(d.deaths))
					renewals.Add(int64(d.renewals))
					restarts.Add(int64(d.restarts))
					twice.Add(int64(d.whileLost))
				})
			}
		})
	}
	t.Logf("%d runs, %d deaths, %d of them while an attempt ended, %d renewals, %d restarts", *renewalSeeds, deaths.Load(), twice.Load(),
		renewals.Load(), restarts.Load())
	if least := int64(*renewalSeeds / 2); renewals.Load() < least { // how many there are depends on times
		t.Errorf("there are only %d renewals, want %d at least", renewals.Load(), least)
	}
}

func newDying(t *testing.T, seed uint64) *dying {
	const processes = 14
	random := rand.New(rand.NewPCG(seed, 3))
	d := &dying{t: t, random: random, network: transport.NewMemory(), fire: make(chan struct{}, 1), got: &outcome{},
		cuts: [][]int{{2}, {2, 3}, {1, 2, 4}, {1, 2, 3}}[random.IntN(4)]}
	d.ahead, d.clip = random.IntN(2) == 0, []float64{0.05, 1e9}[random.IntN(2)]
	names := []string{boss}
	for i := range processes {
		names = append(names, fmt.Sprint("worker-", i))
	}
	d.all = join(t, d.network, names...)
	for _, p := range d.all {
		p.net.sent = func() {
			if d.left.Add(-1) == 0 {
				select {
				case d.fire <- struct{}{}:
				default:
				}
			}
		}
	}
	d.network.SetFaults(seed, transport.Faults{Drop: 0.001, Duplicate: 0.1, Delay: 300 * time.Microsecond})
	return d
}
