package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// hosts are a coordinator's workers, for one run.
type hosts struct {
	*Coordinator
	had    int               // workers of the attempt before
	notice func(text string) // is told what is waited for, when that takes a while; nil: the log is
}

// free are the workers that compute for nobody, by name, without those that could not
// reach one before them. mu is held.
func (h *hosts) free() []*workerState {
	var free []*workerState
	for _, w := range h.workers {
		if w.attempt == nil {
			free = append(free, w)
		}
	}
	slices.SortFunc(free, func(a, b *workerState) int { // workers of one host are neighbours
		return cmp.Or(strings.Compare(hostOf(a.Address), hostOf(b.Address)), strings.Compare(a.Name, b.Name))
	})
	var joined []*workerState
	for _, w := range free {
		if !slices.ContainsFunc(joined, func(other *workerState) bool { return h.keptApart(w.ID, other.ID) }) {
			joined = append(joined, w)
		}
	}
	return joined
}

// releasing reports whether workers are being given back. mu is held.
func (c *Coordinator) releasing() bool {
	for _, w := range c.workers {
		if w.attempt != nil && !w.attempt.ended.IsZero() {
			return true
		}
	}
	return false
}

// apartTime is how long two workers that could not reach each other are not used together.
const apartTime = time.Minute

// keptApart reports whether two workers are not to be used together. mu is held.
func (c *Coordinator) keptApart(a, b uuid.UUID) bool {
	now := time.Now()
	return now.Before(c.apart[[2]uuid.UUID{a, b}]) || now.Before(c.apart[[2]uuid.UUID{b, a}])
}

// regroupTime is how long a run that has lost a worker waits for as many as it had: one
// that was started again takes a moment to join.
const regroupTime = time.Second

// Choose takes as many free workers as there are ranks, or all.
func (h *hosts) Choose(ctx context.Context, cfg *config.Config, wait time.Duration) (plan.Workers, error) {
	began := time.Now()
	deadline, regroup, patience := time.NewTimer(wait), time.NewTimer(min(wait, regroupTime)), newPatience()
	defer deadline.Stop()
	defer regroup.Stop()
	defer patience.stop()
	for {
		least := 1
		if time.Since(began) < min(wait, regroupTime) {
			least = h.had
		}
		a, changed, err := h.choose(cfg, least, time.Since(began) < releaseTime)
		if a != nil {
			h.had = len(a.shares)
			return a, nil
		}
		took := time.Since(began)
		switch {
		case errors.Is(err, errReleasing) && took < releaseTime:
			regroup.Reset(releaseTime - took)
			deadline.Reset(max(wait, releaseTime) - took) // who waits for nothing waits for these
		case wait == 0 || !errors.Is(err, plan.ErrNoRoom):
			return nil, err
		default:
			if left := min(wait, regroupTime) - took; left > 0 { // also where it was reset
				regroup.Reset(left)
			}
		}
		select {
		case <-changed:
		case <-regroup.C:
		case <-patience.timer.C:
			h.tellWaiting(fmt.Sprintf("the run waits for workers for %.0f s: %v", patience.waited().Seconds(), err))
		case <-deadline.C:
			return nil, fmt.Errorf("%w, after %.0f s", err, wait.Seconds())
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// releaseTime is how long a run waits for workers that another one is giving back.
const releaseTime = 5 * time.Second

var errReleasing = fmt.Errorf("%w: some are being given back", plan.ErrNoRoom)

// choose takes at least that many free workers, or none; patient says that it does better to
// take none yet where more are being given back.
func (h *hosts) choose(cfg *config.Config, least int, patient bool) (a *attempt, changed <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, errClosed
	}
	if err := checkNumbers(cfg); err != nil {
		return nil, nil, err
	}
	free, what := h.free(), ""
	ranks := cfg.Ranks()
	_, gpu := kindsOf(cfg)
	defer func() {
		if seen := h.seen(gpu); errors.Is(err, plan.ErrNoRoom) && seen != "" {
			err = fmt.Errorf("%w (%s)", err, seen)
		}
	}()
	if gpu {
		free, what = withGPUs(free), " and have a GPU"
	}
	if patient && len(free) < ranks && h.releasing() {
		return nil, h.changed, errReleasing
	}
	if len(free) < max(1, least) {
		if len(h.workers) == 0 {
			return nil, h.changed, fmt.Errorf("%w: none has joined; start one (engine worker), or give --workers to wait for them", plan.ErrNoRoom)
		}
		return nil, h.changed, fmt.Errorf("%w: %d of the %d that have joined are free%s, and the run, of %s, needs %d", plan.ErrNoRoom, len(free), len(h.workers), what, words.Plural(ranks, "rank"), max(1, least))
	}
	if place := cfg.Cluster.Place; len(place) > 0 {
		if free, err = h.named(cfg, place, free); err != nil {
			return nil, h.changed, err
		}
	}
	if len(free) > ranks && len(cfg.Cluster.Place) == 0 {
		free = withRoom(free, slices.Max(cfg.Parallel.Tensor))
	}
	free = free[:min(len(free), ranks)]
	if err := sameKernels(cfg, free); err != nil {
		return nil, h.changed, err
	}
	h.generation++
	id, err := uuid.NewV7()
	if err != nil {
		return nil, nil, err
	}
	a = &attempt{c: h.Coordinator, cfg: cfg, id: id, generation: h.generation, tellWaiting: h.tellWaiting, answers: make(chan answer, 2*len(free)), gone: make(chan struct{}), told: make(map[string]bool), cuts: newCuts(h.Coordinator, free), memory: make(map[int]int64)}
	for _, w := range free {
		w.attempt = a
		a.shares = append(a.shares, &share{Member: w.Member})
	}
	return a, nil, nil
}

// withRoom has workers in front whose hosts have a core for each rank of a tensor group.
func withRoom(free []*workerState, tensor int) []*workerState {
	cores := make(map[string]int)
	for _, w := range free {
		cores[hostOf(w.Address)] += max(1, int(w.Offer.GetCores()))
	}
	small := func(w *workerState) int {
		if cores[hostOf(w.Address)] < tensor {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(free, func(a, b *workerState) int { return small(a) - small(b) })
	return free
}

// named are the workers that the configuration names for its ranks, each once.
func (h *hosts) named(cfg *config.Config, place []string, free []*workerState) (chosen []*workerState, err error) {
	for rank, name := range place {
		if slices.ContainsFunc(chosen, func(w *workerState) bool { return w.Name == name }) {
			continue
		}
		i := slices.IndexFunc(free, func(w *workerState) bool { return w.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: cluster.place puts rank %d on worker %q, which is not free", plan.ErrNoRoom, rank, name)
		}
		chosen = append(chosen, free[i])
	}
	return chosen, nil
}

// divide gives the chosen workers their ranks, and these their devices: those that the
// configuration says, or by memory and cores.
func (a *attempt) divide(as plan.Assignment) error {
	cpu, gpu := kindsOf(as.Config)
	if gpu && !cpu && len(as.Config.Cluster.Place) == 0 {
		if err := a.divideGPUs(as); err != nil {
			return err
		}
	} else if err := a.divideHosts(as); err != nil {
		return err
	} else if gpu {
		for _, s := range a.shares {
			if err := s.onGPUs(as.Config); err != nil {
				return err
			}
		}
	}
	var idle []string
	for _, s := range a.shares {
		if len(s.ranks) == 0 { // others may have it
			a.c.free(s.ID, a)
			idle = append(idle, s.Name)
		}
	}
	if len(idle) > 0 {
		a.apart = fmt.Sprintf("no ranks for %s, since tensor groups stay on one host: make parallel.tensor smaller, or use more stages or replicas, to use all", strings.Join(idle, ", "))
	}
	return nil
}

// busy are the shares that have ranks.
func (a *attempt) busy() (some []*share) {
	for _, s := range a.shares {
		if len(s.ranks) > 0 {
			some = append(some, s)
		}
	}
	return some
}

func (a *attempt) divideHosts(as plan.Assignment) error {
	bytes, err := as.Plan.RankBytes()
	if err != nil {
		return err
	}
	sameHost := make(map[string]int64)
	var hosts []string
	for _, s := range a.shares {
		sameHost[s.host()]++
		hosts = append(hosts, s.host())
	}
	if place := as.Config.Cluster.Place; len(place) > 0 {
		parts := make([][]int, len(a.shares))
		for rank, name := range place {
			for i, s := range a.shares {
				if s.Name == name {
					s.ranks = append(s.ranks, rank)
					parts[i] = s.ranks
				}
			}
		}
		a.apart = spread(as.Plan.Grid(), parts, hosts, bytes)
		return nil
	}
	var workers []capacity
	for _, s := range a.shares {
		workers = append(workers, capacity{s.Name, s.Offer.GetMemoryBytes() / sameHost[s.host()], int(s.Offer.GetCores())})
	}
	parts, apart, err := arrange(as.Plan.Grid(), bytes, as.Plan.RankFLOPs(), workers, hosts)
	if err != nil {
		return err
	}
	a.apart = apart
	for i, s := range a.shares {
		s.ranks = parts[i]
	}
	return nil
}

// attempt is one at a run, with the workers that it has.
type attempt struct {
	c          *Coordinator
	cfg        *config.Config
	id         uuid.UUID
	generation uint64
	run        uuid.UUID
	shares     []*share
	answers    chan answer
	// tellWaiting is told what is waited for.
	tellWaiting func(text string)
	ended       time.Time // since when its workers are being given back; zero: they are not; c.mu
	cuts        *cuts
	apart       string // which tensor groups are on several hosts, or which workers have no ranks since none is; "": neither

	mu     sync.Mutex
	actors *actors.Run
	err    error // the first worker that was lost
	gone   chan struct{}
	memory map[int]int64   // the most tensor memory that a rank has taken at a time
	told   map[string]bool // workers of which was said that they can't reach something, or can't be
}

// share is a worker's part of an attempt.
type share struct {
	beat.Member
	ranks   []int
	devices []*wire.OfferedDevice // of each rank, where some compute on a GPU

	doing string // what its stages were last heard to be doing
}

// peer is the worker as others reach it.
func (s *share) peer() *wire.Peer {
	return &wire.Peer{Name: s.Name, Incarnation: s.ID[:], Address: s.Address, DataAddress: s.DataAddress}
}

// host is the address of the worker's host.
func (s *share) host() string { return hostOf(s.Address) }

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// answer is a worker's answer to an assignment.
type answer struct {
	from  uuid.UUID
	error string
	probe []byte // what it has put beside the probe
	blind string // why it does not see the run's folder
}

func (a *attempt) ranksOf(worker uuid.UUID) []int {
	for _, s := range a.shares {
		if s.ID == worker {
			return s.ranks
		}
	}
	return nil
}

// Path names the workers' kernels: all have the same, or the configuration names them.
func (a *attempt) Path() string { return device.PathOf(a.cfg, kernelsOf(a.cfg, a.shares[0].Offer)) }

// Devices names what they compute on.
func (a *attempt) Devices() string { return deviceNames(a.cfg) }

// Threads are the cores of all; one for each that computes on a GPU alone, as a GPU has it.
func (a *attempt) Threads() int {
	n := 0
	if cpu, _ := kindsOf(a.cfg); !cpu {
		return len(a.busy())
	}
	for _, s := range a.busy() {
		n += int(s.Offer.GetCores())
	}
	return n
}

// Assign gives every worker its ranks.
func (a *attempt) Assign(ctx context.Context, as plan.Assignment) (plan.Ranks, error) {
	a.run = as.Run
	if err := a.divide(as); err != nil {
		return plan.Ranks{}, err
	}
	r := plan.Ranks{Attempt: a.id, System: a.c.system, Hosts: make([]string, as.Plan.Grid().World()),
		Attach: func(c *actors.Codec) { a.c.mesh.Attach(c, a.processes()) }, Detach: func() { a.c.mesh.Detach(a.id) }, Clock: a.clock, CutLinks: a.cuts.links, Memory: func() []int64 { return a.rankMemory(as.Plan.Grid().World()) }}
	peers := make([]*wire.Peer, len(r.Hosts))
	for _, s := range a.shares {
		for _, rank := range s.ranks {
			r.Hosts[rank] = s.Address
			peers[rank] = s.peer()
		}
	}
	model, err := json.Marshal(as.Plan.Model().Config)
	if err != nil {
		return r, err
	}
	if err := a.checkEdge(); err != nil {
		return r, err
	}
	probe := a.probe(as)
	defer a.unprobe(probe)
	r.Shares = make([]bool, len(r.Hosts))
	digest := as.Plan.Digest()
	for _, s := range a.busy() {
		m := &wire.Assign{Run: as.Run[:], Attempt: a.id[:], Generation: a.generation, Hosts: peers, Config: as.Config.TOML(), Model: model,
			Table: as.Plan.TableText(), Digest: digest[:], FromCheckpoint: as.Stored, WithState: as.WithState, LeaseS: as.Config.Cluster.LeaseS, Step: as.Step}
		if a.onEdge(s) {
			probe.assign(m)
		}
		for _, rank := range s.ranks {
			m.Ranks = append(m.Ranks, int32(rank)) //nolint:gosec // bounded by config
		}
		for _, d := range s.devices {
			m.Ordinals = append(m.Ordinals, d.GetOrdinal())
		}
		m.EvalMicrobatches = int32(as.EvalMicrobatches) //nolint:gosec // bounded by config
		if err := a.c.mesh.Control(s.ID, &wire.Control{Kind: &wire.Control_Assign{Assign: m}}); err != nil {
			return r, a.lostError(s, err)
		}
	}
	err = a.ready(ctx, func(got answer) {
		if a.onEdge(a.shareOf(got.from)) && a.seesFolder(probe, got) {
			for _, rank := range a.ranksOf(got.from) {
				r.Shares[rank] = true
			}
		}
	})
	return r, err
}

// ready waits until every worker is ready to compute its ranks, and tells which was not in time.
func (a *attempt) ready(ctx context.Context, is func(got answer)) error {
	patience, waits := newPatience(), a.busy()
	defer patience.stop()
	var late <-chan time.Time // when those that are not ready have held up others for long
	for len(waits) > 0 {
		select {
		case <-patience.timer.C:
			a.tellWaiting(fmt.Sprintf("the run waits for %s to be ready to compute, for %.0f s%s", namesOf(waits), patience.waited().Seconds(), a.heldBy(waits)))
		case <-late:
			for _, s := range waits {
				a.lost(s.Member, fmt.Errorf("it was not ready to compute %.0f s after the first of the others", readyTime.Seconds()))
			}
		case got := <-a.answers:
			if late == nil {
				timer := time.NewTimer(readyTime)
				defer timer.Stop()
				late = timer.C
			}
			waits = slices.DeleteFunc(waits, func(s *share) bool { return s.ID == got.from })
			if got.error != "" {
				return &workerError{a.name(got.from), got.error}
			}
			is(got)
		case <-a.gone:
			return a.err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// readyTime is how long a worker that is reached may take to be ready for its ranks, behind the first of the others: to open
// its devices, and to look for the run's folder. One that isn't then may have a driver or a disk that hangs. Workers that
// aren't reached are found sooner: see Coordinator.far.
const readyTime = 2 * time.Minute

// heldBy says which of the workers that are waited for can't be reached, or can't reach; "": none, as far as it is known.
func (a *attempt) heldBy(waits []*share) string {
	var all []string
	for _, l := range a.cuts.links() {
		if slices.ContainsFunc(waits, func(s *share) bool { return s.Name == l.From || s.Name == l.To }) {
			all = append(all, l.String())
		}
	}
	if len(all) == 0 {
		return ""
	}
	return ": " + strings.Join(all, "; ")
}

// processes are the workers that have ranks, by their addresses.
func (a *attempt) processes() map[string]uuid.UUID {
	at := make(map[string]uuid.UUID)
	for _, s := range a.busy() {
		at[s.Address] = s.ID
	}
	return at
}

// probe makes the file by which workers show that they see the run's folder; nil: they are not
// asked.
func (a *attempt) probe(as plan.Assignment) *folderProbe {
	if as.Folder == nil {
		return nil
	}
	p, err := newFolderProbe(as.Folder)
	if err != nil {
		a.c.log.Warn("can't try whether workers see the run's folder; they send what they save", "run", a.run, "err", err)
		return nil
	}
	return p
}

func (a *attempt) unprobe(p *folderProbe) {
	if p == nil {
		return
	}
	var workers []uuid.UUID
	for _, s := range a.shares {
		workers = append(workers, s.ID)
	}
	if err := p.remove(workers); err != nil {
		a.c.log.Warn("can't remove what tried whether workers see the run's folder", "run", a.run, "err", err)
	}
}

// seesFolder reports whether a worker has shown that it sees the run's folder.
func (a *attempt) seesFolder(p *folderProbe, got answer) bool {
	if p == nil {
		return false
	}
	why := got.blind
	if why == "" {
		if err := p.check(got.from, got.probe); err != nil {
			why = err.Error()
		}
	}
	if why != "" {
		a.c.log.Info("a worker doesn't see the run's folder; it sends what it saves", "run", a.run, "worker", a.name(got.from), "why", why)
		return false
	}
	a.c.log.Info("a worker sees the run's folder; it writes what it saves there itself", "run", a.run, "worker", a.name(got.from))
	return true
}

// clock is how the clock of a rank's worker stands to this process's, by its latest beats.
func (a *attempt) clock(rank int) event.Clock {
	for _, s := range a.shares {
		if slices.Contains(s.ranks, rank) {
			m := a.c.beats.Member(s.ID)
			return event.Clock{Process: s.Name, Ahead: m.Offset, Within: (m.RoundTrip + 1) / 2}
		}
	}
	return event.Clock{}
}

func (a *attempt) name(worker uuid.UUID) string {
	for _, s := range a.shares {
		if s.ID == worker {
			return s.Name
		}
	}
	if worker == a.c.id {
		return coordinatorName
	}
	return worker.String()
}

// answer takes a worker's message about the attempt.
func (a *attempt) answer(from uuid.UUID, m *wire.Control) {
	switch k := m.Kind.(type) {
	case *wire.Control_Assigned:
		if string(k.Assigned.GetAttempt()) == string(a.id[:]) {
			select {
			case a.answers <- answer{from, k.Assigned.GetError(), k.Assigned.GetProbeAnswer(), k.Assigned.GetProbeError()}:
			default: // more answers than there are workers
			}
		}
	case *wire.Control_Released:
		if string(k.Released.GetAttempt()) == string(a.id[:]) {
			a.c.free(from, a)
		}
	}
}

// free makes a worker available to another attempt.
func (c *Coordinator) free(worker uuid.UUID, a *attempt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.workers[worker]; w != nil && w.attempt == a {
		w.attempt = nil
		c.tell()
	}
}

// Watch tells the run of what happens to its workers.
func (a *attempt) Watch(r *actors.Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.actors = r
	if a.apart != "" {
		r.Publish(troupe.WarningEvent{Text: a.apart})
	}
	for _, s := range r.Status().Actors { // until it is heard what they do
		for _, part := range a.shares {
			if slices.Contains(part.ranks, s.Rank) {
				s.Host, s.Heard = part.Name, part.Heard
				r.Observe(s)
			}
		}
	}
	var lost *plan.LostError
	if errors.As(a.err, &lost) {
		r.Lost(lost.Ranks, lost)
	}
}

// lost is called when a worker of the attempt is gone.
func (a *attempt) lost(m beat.Member, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.shares {
		if s.ID != m.ID {
			continue
		}
		s.Member = m
		err := a.lostError(s, why)
		if a.err == nil {
			a.err = err
			close(a.gone)
		}
		if a.actors != nil {
			a.actors.Lost(s.ranks, err)
		} else if len(s.ranks) > 0 {
			a.tellWaiting(fmt.Sprintf("%v; the run uses other workers", err))
		}
	}
}

func (a *attempt) lostError(s *share, why error) error {
	return &plan.LostError{Worker: s.Name + " at " + s.Address, Ranks: s.ranks, Doing: s.doing, Err: why}
}

// observe takes what a worker's stages are doing, by this process's clock.
func (a *attempt) observe(m beat.Member, reply *wire.StatusReply) {
	if string(reply.GetAttempt()) != string(a.id[:]) {
		return
	}
	if why := reply.GetGaveUp(); why != "" { // it stays a member, and can be given ranks again
		a.lost(m, fmt.Errorf("it gave its ranks up: %s", clean(why, limitErrorBytes)))
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var doing []string
	for _, w := range reply.GetActors() {
		s, err := actors.UnpackSnapshot(w)
		if err == nil && !slices.Contains(a.ranksOf(m.ID), s.Rank) {
			err = fmt.Errorf("it is of rank %d, which the worker does not have", s.Rank)
		}
		if err != nil {
			a.c.mesh.Refuse(m.Name, fmt.Errorf("a status: %w", err))
			continue
		}
		s.Since = m.Heard.Add(s.Since.Sub(time.Unix(0, reply.GetTimeNs()))) // ages are right, whatever the clocks
		s.Host, s.Heard = m.Name, m.Heard
		doing = append(doing, s.Describe())
		if a.actors != nil {
			a.actors.Observe(s)
		}
	}
	for _, s := range a.shares {
		if s.ID != m.ID {
			continue
		}
		s.doing = strings.Join(doing, "; ")
		if err := a.observeRecorded(s, m.Offset, reply); err != nil {
			a.c.mesh.Refuse(m.Name, err)
		}
	}
}

// unreachable takes a worker's word that it can't reach another process, though both can
// reach this one: the attempt ends, and the next one does without one of the two.
func (a *attempt) unreachable(m beat.Member, far []*wire.Unreachable) {
	a.cuts.note(m, far)
	for _, u := range far {
		id, err := uuid.FromBytes(u.GetIncarnation())
		if err != nil || id != a.c.id && a.ranksOf(id) == nil {
			continue
		}
		why := fmt.Errorf("it could not reach %s for %.1f s", a.name(id), u.GetForS())
		quiet := time.Duration(u.GetForS() * float64(time.Second))
		if quiet < unreachableSilences*a.c.cfg.Silence {
			a.stalled(m.Name, quiet, why)
			continue
		}
		if id == a.c.id {
			a.c.beats.Expel(m.ID, why)
			return
		}
		a.c.mu.Lock()
		a.c.apart[[2]uuid.UUID{m.ID, id}] = time.Now().Add(apartTime)
		a.c.mu.Unlock()
		a.lost(m, why)
	}
}

// well notes that a worker reaches all, and is reached.
func (a *attempt) well(worker string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.told, worker)
}

// stalled says that the run waits because something can't be reached: once for a worker, until
// it is well again.
//
// It comes with the first beat behind the silence, and so within beat.beatMost and a round trip
// of it, counted from when the first of what waits was sent or the last was acknowledged.
func (a *attempt) stalled(worker string, quiet time.Duration, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.told[worker] {
		return
	}
	a.told[worker] = true
	text := fmt.Sprintf("%s is there, but %v", worker, why)
	if a.actors == nil { // it has not begun
		a.tellWaiting(text)
		return
	}
	a.actors.Publish(troupe.WarningEvent{Text: text})
	a.actors.Stalled(quiet)
}

// Release gives the workers back.
func (a *attempt) Release() {
	a.c.mu.Lock()
	a.ended = time.Now()
	a.c.mu.Unlock()
	for _, s := range a.shares {
		// One that is gone needs no word.
		_ = a.c.mesh.Control(s.ID, &wire.Control{Kind: &wire.Control_Release{Release: &wire.Release{Attempt: a.id[:]}}})
	}
}
