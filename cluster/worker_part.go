package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops"
)

// part is a worker's part of an attempt at a run.
type part struct {
	w         *membership
	id, run   uuid.UUID
	lease     time.Duration
	stages    *actors.Stages // nil: not started
	ended     bool           // it was told to end; w.mu
	peers     []uuid.UUID    // other workers
	processes []uuid.UUID    // of all ranks
	folder    *folder.Folder // the run's, to write checkpoints to; nil: this worker does not see it
	set       *device.Set
	lent      bool   // set belongs to what is kept of the part
	digest    string // of the plan
	plan      *plan.Plan
	order     *wire.Assign        // from which it was resolved
	told      map[int]actors.Told // actions that the coordinator has, by rank; w.mu
	dropped   chan struct{}       // closed when all its resources are free
}

// accept makes this worker's part of an attempt, and ends the parts of older attempts. w.mu is held.
func (w *membership) accept(m *wire.Assign) (p *part, old []*part, err error) {
	p = &part{w: w, told: make(map[int]actors.Told), dropped: make(chan struct{}), lease: time.Duration(m.GetLeaseS() * float64(time.Second))}
	if p.run, err = uuid.FromBytes(m.GetRun()); err != nil {
		return nil, nil, fmt.Errorf("the run's id: %w", err)
	}
	if p.id, err = uuid.FromBytes(m.GetAttempt()); err != nil {
		return nil, nil, fmt.Errorf("the attempt's id: %w", err)
	}
	if m.GetGeneration() <= w.highest {
		return nil, nil, fmt.Errorf("attempt %d is out of date: this worker has seen attempt %d", m.GetGeneration(), w.highest)
	}
	w.highest = m.GetGeneration()
	if w.parts[p.id] != nil {
		return nil, nil, fmt.Errorf("attempt %v was assigned to this worker already", p.id)
	}
	clear(w.gaveUp)
	for _, o := range w.parts { // the coordinator has released them, or does not know them
		if !o.renewedBy(m) {
			o.end(newerAttempt)
		}
		old = append(old, o)
	}
	w.parts[p.id] = p
	return p, old, nil
}

// assign starts the stages of an accepted part once the older parts have ended. It adds to answer whether this worker
// sees the run's folder.
func (w *membership) assign(p *part, old []*part, m *wire.Assign, boss *wire.Peer, answer *wire.Assigned) error {
	for _, o := range old {
		o.waitAtMost(keepWait)
	}
	prepared := w.takePrepared(m)
	kept, err := w.takeKept(m)
	if err != nil {
		prepared.close("the attempt could not begin")
		w.drop(p)
		return err
	}
	if kept == nil {
		kept = prepared
	}
	if kept != nil {
		p.set = kept.set
	}
	p.see(m, answer)
	spec, weights, err := p.resolve(m, boss, kept)
	if err == nil {
		if kept != nil {
			spec.Adopt = kept.stages
		}
		if p.folder != nil {
			spec.WriteOwn = p.writeOwn
		}
		spec.Run, spec.Attempt = p.run, p.id
		w.mu.Lock()
		if p.ended {
			err = errors.New("the attempt has ended")
		} else {
			p.stages, err = actors.StartStages(*spec, boss.GetAddress(), weights)
		}
		w.mu.Unlock()
	}
	if err != nil {
		if kept != nil {
			p.set = nil
			kept.close("the attempt could not begin")
		}
		w.drop(p)
		return err
	}
	w.log.Info("started computing", "run", p.run, "ranks", m.GetRanks())
	w.running.Add(1)
	go func() { // ends with the stages
		defer w.running.Done()
		p.stages.Wait()
		w.keep(p)
		w.drop(p)
		w.log.Info("stopped computing", "run", p.run, "ranks", m.GetRanks())
	}()
	return nil
}

// resolvePlan resolves the coordinator's plan again and compares the digests, unless what was kept has the same plan.
func (p *part) resolvePlan(m *wire.Assign, kept *keptPart) (*plan.Plan, error) {
	p.order = m
	if p.plan = kept.planOf(m); p.plan != nil {
		return p.plan, nil
	}
	cfg, err := config.ParseStored("the coordinator's configuration", m.GetConfig())
	if err != nil {
		return nil, err
	}
	if p.w.cfg.Threads > 0 {
		cfg.Device.Threads = p.w.cfg.Threads
	}
	var model stages.Config
	if err := json.Unmarshal(m.GetModel(), &model); err != nil {
		return nil, fmt.Errorf("parse the model: %w", err)
	}
	var table []byte
	if len(m.GetTable()) > 0 {
		table = m.GetTable()
	}
	pl, err := plan.NewOf(cfg, model, table)
	if err != nil {
		return nil, err
	}
	if digest := pl.Digest(); string(digest[:]) != string(m.GetDigest()) {
		return nil, fmt.Errorf("plan mismatch: this worker resolved %x, the coordinator %x; check that both run the same build and config",
			digest[:8], m.GetDigest()[:min(8, len(m.GetDigest()))])
	}
	p.plan = pl
	return pl, nil
}

// loadReaders is how many tensors a rank reads at a time from ranks that have the same state.
const loadReaders = 4

// resolve resolves the plan and returns the stages' spec.
func (p *part) resolve(m *wire.Assign, boss *wire.Peer, kept *keptPart) (*actors.Spec, *actors.WeightReader, error) {
	w := p.w
	pl, err := p.resolvePlan(m, kept)
	if err != nil {
		return nil, nil, err
	}
	cfg := pl.Config()
	ranks, hosts, err := p.hosts(m, pl.Grid().World())
	if err != nil {
		return nil, nil, err
	}
	shadows, err := p.shadowsOf(m, pl)
	if err != nil {
		return nil, nil, err
	}
	if err := checkRanks(pl, kept, ownRanks(m.GetRenewal(), ranks, hosts), shadows); err != nil {
		return nil, nil, err
	}
	load := func(int) stages.Source { return stages.InitWeights(cfg.Run.Seed) }
	var weights *actors.WeightReader
	withState, readers := m.GetWithState(), 1
	switch r := m.GetRenewal(); {
	case len(r.GetCopies()) > 0:
		withState, readers = true, loadReaders
		if weights, load, err = p.sources(r, pl, ranks, hosts, shadows); err != nil {
			return nil, nil, err
		}
		frozen := stages.InitWeights(cfg.Run.Seed)
		if m.GetFromCheckpoint() {
			frozen = stages.Sliced(weights.Source)
		}
		load = withFrozen(load, frozen)
	case m.GetFromCheckpoint():
		weights = actors.NewWeightReader()
		load = func(int) stages.Source { return stages.Sliced(weights.Source) }
	}
	groups := &rankGroups{mesh: w.mesh, attempt: p.id, grid: pl.Grid(), processes: p.processes}
	spec, err := pl.StagesFrom(int(m.GetEvalMicrobatches()), plan.Loading{From: load, WithState: withState, Readers: readers}, groups)
	if err != nil {
		return nil, nil, err
	}
	if m.GetRenewal().GetRescue() {
		spec.Rescue = &event.RegroupEvent{}
	}
	if spec.Shadows = shadows; weights != nil {
		spec.Read = weights.Read
	}
	spec.Hosts, spec.System, spec.Logger, spec.Wall = hosts, w.system, w.log, w.cfg.wall
	spec.Start.Step, spec.Target, p.digest = m.GetStep(), target(m.GetRenewal()), string(m.GetDigest())
	if p.set == nil { // not kept
		p.set, err = p.open(cfg, pl, ranks, m.GetOrdinals())
	} else {
		err = p.set.Include(cfg, ranks)
	}
	if err != nil {
		return nil, nil, err
	}
	spec.Devices = p.set.OfRanks()
	processes := p.processesBy(hosts, boss)
	spec.Attach, spec.Detach = func(c *actors.Codec) { w.mesh.Attach(c, processes) }, func() { w.mesh.Detach(p.id) }
	return &spec, weights, nil
}

// errCrowded: a worker's ranks fit its memory, but not with the shadows of others.
var errCrowded = errors.New("there is no room for shadows of other ranks")

// checkRanks checks device.memory_gib, and that this worker has the memory for what it does not hold yet.
func checkRanks(pl *plan.Plan, kept *keptPart, ranks, shadows []int) error {
	if err := pl.CheckLimit(plan.Shadows{At: shadows}); err != nil {
		return err
	}
	own, shadowed := kept.without(ranks, shadows)
	err := pl.CheckRanks(own, shadowed)
	if err != nil && len(shadowed) > 0 && pl.CheckRanks(own, nil) == nil {
		return fmt.Errorf("%w: %w", errCrowded, err)
	}
	return err
}

// ownRanks returns those of this worker's ranks that take memory of their own. In a rescue, ranks that save from what this worker has kept
// of others do not. hosts has the addresses of all ranks' processes, "" for this one.
func ownRanks(r *wire.Renewal, ranks []int, hosts []string) (own []int) {
	copies := r.GetCopies()
	for i, rank := range ranks {
		if r.GetRescue() && i < len(copies) {
			if from := int(copies[i]); from >= 0 && from < len(hosts) && hosts[from] == "" {
				continue
			}
		}
		own = append(own, rank)
	}
	return own
}

// open opens the devices of the ranks here, and checks that the ranks on a GPU fit its memory.
func (p *part) open(cfg *config.Config, pl *plan.Plan, ranks []int, ordinals []int32) (*device.Set, error) {
	at := make(map[int]int)
	for i, r := range ranks {
		at[r] = 0
		if device.KindOf(cfg, cfg.StageOf(r)) != device.CUDA {
			continue
		}
		if len(ordinals) != len(ranks) {
			return nil, fmt.Errorf("the coordinator names %d GPUs for ranks %d; want one for each rank", len(ordinals), ranks)
		}
		at[r] = int(ordinals[i])
	}
	set, err := device.OpenSetAt(cfg, at)
	if err != nil {
		return nil, err
	}
	set.OnWarning(func(text string) { p.w.log.Warn(text) })
	if err := p.checkGPUs(cfg, pl, set, at); err != nil {
		set.Close()
		return nil, err
	}
	return set, nil
}

func (p *part) checkGPUs(cfg *config.Config, pl *plan.Plan, set *device.Set, at map[int]int) error {
	on := make(map[tensorops.Device][]int)
	of := set.OfRanks()
	for r, ordinal := range at {
		if device.KindOf(cfg, cfg.StageOf(r)) != device.CUDA {
			continue
		}
		on[of[r]] = append(on[of[r]], r)
		for _, d := range p.w.devices {
			// A library that was found may fail to start on the GPU.
			if offered := device.WithTF32(d.GetKernels(), cfg.Device.TF32); int(d.GetOrdinal()) == ordinal && offered != of[r].Path() {
				return fmt.Errorf("GPU %d opened with %s kernels, but this worker offered %s; run engine doctor on its host", ordinal, of[r].Path(),
					offered)
			}
		}
	}
	for _, d := range set.Opened() {
		if ranks := on[d]; len(ranks) > 0 {
			slices.Sort(ranks)
			pl.SetKernels(d.Path())
			if err := pl.CheckGPU(ranks, device.FreeBytes(d)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hosts returns the ranks here, and the addresses of all ranks' processes, "" for this one.
func (p *part) hosts(m *wire.Assign, ranks int) (own []int, hosts []string, err error) {
	if len(m.GetHosts()) != ranks {
		return nil, nil, fmt.Errorf("the coordinator names %d processes for %d ranks; want one for each rank", len(m.GetHosts()), ranks)
	}
	for r, h := range m.GetHosts() {
		id, _ := uuid.FromBytes(h.GetIncarnation()) // SetPeer refuses an invalid one
		p.processes = append(p.processes, id)
		if string(h.GetIncarnation()) == string(p.w.id[:]) {
			own, hosts = append(own, r), append(hosts, "")
			continue
		}
		if err := p.w.mesh.SetPeer(h); err != nil {
			return nil, nil, err
		}
		hosts = append(hosts, h.GetAddress())
		p.peers = append(p.peers, id)
	}
	if len(own) != len(m.GetRanks()) {
		return nil, nil, fmt.Errorf("the coordinator assigns ranks %d, but its list gives this process ranks %d", m.GetRanks(), own)
	}
	return own, hosts, nil
}

// processesBy returns the other processes of the attempt, by address.
func (p *part) processesBy(hosts []string, boss *wire.Peer) map[string]uuid.UUID {
	id, _ := uuid.FromBytes(boss.GetIncarnation()) // SetPeer has checked it
	at := map[string]uuid.UUID{boss.GetAddress(): id}
	for rank, host := range hosts {
		if host != "" {
			at[host] = p.processes[rank]
		}
	}
	return at
}

// giveUp ends the part's stages without an order. Beats tell the coordinator until it releases the
// attempt. w.mu is held.
func (p *part) giveUp(why string) {
	if !p.ended {
		p.w.gaveUp[p.id] = why
	}
	p.end(why)
}

// end ends the part's stages. w.mu is held.
func (p *part) end(why string) {
	if p.ended {
		return
	}
	p.ended = true
	if p.stages != nil {
		p.w.log.Info("releasing ranks", "why", why)
		p.stages.Kill()
	}
}

// wait waits until all resources of the part are free.
func (p *part) wait() { <-p.dropped }

// waitAtMost waits in the same way, and ends the part if it has not ended in this time.
func (p *part) waitAtMost(d time.Duration) {
	select {
	case <-p.dropped:
		return
	case <-time.After(d):
	}
	p.w.mu.Lock()
	p.end(newerAttempt)
	p.w.mu.Unlock()
	p.wait()
}

// drop frees the resources of an ended part and forgets the workers of its attempt. It must run
// before the next part, which may have the same workers, adds them again.
func (w *membership) drop(p *part) {
	for _, id := range p.peers {
		w.mesh.Forget(id)
	}
	if p.set != nil && !p.lent {
		p.set.Close()
	}
	if p.folder != nil {
		_ = p.folder.Close() // nothing was written through this handle
	}
	w.mu.Lock()
	delete(w.parts, p.id)
	w.mu.Unlock()
	close(p.dropped)
}
