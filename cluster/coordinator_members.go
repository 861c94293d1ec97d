package cluster

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/apiwire"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/members"
	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Member is a worker, as it was last heard of.
type Member struct {
	Name, Address string
	Cores         int
	MemoryBytes   int64
	Kernels       string
	Devices       []OfferedDevice // beside the CPU
	Joined, Heard time.Time
	ClockAhead    time.Duration
	RoundTrip     time.Duration
	Run           uuid.UUID // that it computes ranks of; Nil: none
	Ranks         []int
}

// workerState is what the coordinator knows of a worker beside its beats.
type workerState struct {
	beat.Member
	attempt *attempt // that it computes ranks of; nil: none
}

// heard is what beats say of a worker that comes or goes.
type heard struct {
	beat.Member
	why error // it is gone
}

// Members lists the workers, in the order in which they joined.
func (c *Coordinator) Members() []Member {
	var all []Member
	for _, m := range c.beats.Members() {
		w := Member{Name: m.Name, Address: m.Address, Cores: int(m.Offer.GetCores()), MemoryBytes: m.Offer.GetMemoryBytes(),
			Kernels: m.Offer.GetKernels(), Devices: unpackDevices(m.Offer.GetDevices()),
			Joined: m.Joined, Heard: m.Heard, ClockAhead: m.Offset, RoundTrip: m.RoundTrip}
		c.mu.Lock()
		if s := c.workers[m.ID]; s != nil && s.attempt != nil {
			w.Run, w.Ranks = s.attempt.run, slices.Clone(s.attempt.ranksOf(m.ID))
		}
		c.mu.Unlock()
		all = append(all, w)
	}
	return all
}

// Wait waits until there are that many workers.
func (c *Coordinator) Wait(ctx context.Context, workers int) error {
	for {
		c.mu.Lock()
		n, changed := len(c.workers), c.changed
		c.mu.Unlock()
		if n >= workers {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d have joined: %w", plan.ErrNoRoom, n, workers, context.Cause(ctx))
		}
	}
}

// admit takes a process as a member, if it may be one.
func (c *Coordinator) admit(h *wire.Hello, _ string) error {
	if err := c.refuses(h); err != nil {
		return err
	}
	for _, m := range c.beats.Members() { // which are not heard, as refuses has found
		switch {
		case m.Name == h.GetWorker().GetName():
			c.beats.Expel(m.ID, fmt.Errorf("%w: it was started again", beat.ErrDead))
		case sharesAddress(h.GetWorker(), m):
			c.beats.Expel(m.ID, fmt.Errorf("%w: worker %q has its address", beat.ErrDead, h.GetWorker().GetName()))
		}
	}
	c.names.came(h.GetWorker().GetName())
	return c.mesh.SetPeer(h.GetWorker())
}

// refuses says why a process may not become a member: its program is another one, or it has the name or the address
// of another process, so that what is for one of the two would be sent to the other.
func (c *Coordinator) refuses(h *wire.Hello) error {
	registered := sameRegistered(h.GetOffer())
	if h.GetBuild() != c.build {
		build := fmt.Errorf("its build is %.200q, the coordinator's %q: the bits of what is trained depend on it, so use the same program everywhere", h.GetBuild(), c.build)
		if registered != nil { // which says more
			return fmt.Errorf("%w; %w", registered, build)
		}
		return build
	}
	if registered != nil {
		return fmt.Errorf("%w; a program must register the same whenever it is started", registered)
	}
	w := h.GetWorker()
	if sharesAddress(w, beat.Member{Address: c.self.GetAddress(), DataAddress: c.self.GetDataAddress()}) {
		return fmt.Errorf("its address %s is the coordinator's own", w.GetAddress())
	}
	for _, m := range c.beats.Members() {
		heard := time.Since(m.Heard).Seconds()
		switch {
		case !m.Connected:
		case m.Name == w.GetName(): // with the same key, which two processes have then
			return fmt.Errorf("%w: %q is the name of a worker at %s, which has the same key and was heard %.1f s ago; each worker needs a certificate of its own: was --cert-file copied?",
				beat.ErrLater, m.Name, m.Address, heard)
		case sharesAddress(w, m):
			return fmt.Errorf("its address %s is that of worker %q, which was heard %.1f s ago; listen at another one (--listen, --advertise)",
				w.GetAddress(), m.Name, heard)
		}
	}
	return nil
}

// sharesAddress reports whether a process has an address of a member's.
func sharesAddress(w *wire.Peer, m beat.Member) bool {
	own := []string{w.GetAddress(), w.GetDataAddress()}
	taken := func(address string) bool { return address != "" && slices.Contains(own, address) }
	return taken(m.Address) || taken(m.DataAddress)
}

// joined and gone put what beats say on the list of members.

func (c *Coordinator) joined(m beat.Member) {
	c.mu.Lock()
	c.heard[m.ID] = heard{Member: m}
	c.mu.Unlock()
	if err := c.members.Add(m.ID, m.Address); err != nil {
		c.log.Error("a worker is no member", "worker", m.Name, "err", err)
	}
}

func (c *Coordinator) gone(m beat.Member, why error) {
	c.mu.Lock()
	c.heard[m.ID] = heard{m, why}
	c.mu.Unlock()
	c.members.Remove(m.ID)
}

// leaving hears that a worker is told to end. Where the coordinator is told so too, its runs write their last checkpoints
// with the worker; else it counts as lost soon.
func (c *Coordinator) leaving(id uuid.UUID) {
	time.AfterFunc(leaveGrace, func() { // ends by itself
		if !c.runs.ending() {
			c.beats.Expel(id, beat.ErrGoodbye)
		}
	})
}

// memberships follows the list of members.
func (c *Coordinator) memberships(change members.Change) {
	for _, id := range change.Joined {
		c.enter(id)
	}
	for _, id := range change.Left {
		c.leave(id)
	}
}

func (c *Coordinator) enter(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.heard[id].Member
	delete(c.heard, id)
	c.workers[id] = &workerState{Member: m}
	c.tell()
	c.unreachable.forget(m.Name)
	c.log.Info("worker joined", "worker", m.Name, "address", m.Address, "cores", m.Offer.GetCores(), "kernels", m.Offer.GetKernels(),
		"devices", len(m.Offer.GetDevices()))
}

func (c *Coordinator) leave(id uuid.UUID) {
	c.mu.Lock()
	w, m, why := c.workers[id], c.heard[id].Member, c.heard[id].why
	delete(c.heard, id)
	delete(c.workers, id)
	maps.DeleteFunc(c.apart, func(pair [2]uuid.UUID, until time.Time) bool {
		return pair[0] == id || pair[1] == id || time.Now().After(until)
	})
	c.tell()
	c.mu.Unlock()
	c.mesh.Forget(id)
	c.log.Warn("worker is gone", "worker", m.Name, "address", m.Address, "heard_s", time.Since(m.Heard).Seconds(), "why", why)
	if w != nil && w.attempt != nil {
		w.attempt.lost(m, why)
	}
}

// tell wakes whoever waits for workers. mu is held.
func (c *Coordinator) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// OfferedDevice is a device of a worker's beside the CPU.
type OfferedDevice struct {
	Kind        string `json:"kind"`
	ID          string `json:"id"` // the same in every process that sees it
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernels     string `json:"kernels"`
}

// limitDevices bounds the devices that are taken note of in an offer.
const limitDevices = 64

// unpackDevices takes what a worker says it has.
func unpackDevices(all []*wire.OfferedDevice) []OfferedDevice {
	var devices []OfferedDevice
	for _, d := range all[:min(len(all), limitDevices)] {
		devices = append(devices, OfferedDevice{d.GetKind(), hex.EncodeToString(d.GetId()), d.GetName(), d.GetMemoryBytes(), d.GetKernels()})
	}
	return devices
}

// packMembers describes the workers.
func (c *Coordinator) packMembers() *wire.MembersReply {
	byUUID := make(map[string]string)
	for _, r := range c.runs.list() {
		ids := r.ids()
		byUUID[ids[1]] = ids[0]
	}
	reply := &wire.MembersReply{TimeNs: clock.Now().UnixNano()}
	for _, m := range c.Members() {
		one := &wire.MemberStatus{Name: m.Name, Address: m.Address, Cores: apiwire.Small(m.Cores), MemoryBytes: m.MemoryBytes, Kernels: m.Kernels,
			JoinedNs: clock.At(m.Joined).UnixNano(), HeardNs: clock.At(m.Heard).UnixNano(),
			ClockAheadNs: int64(m.ClockAhead), RoundTripNs: int64(m.RoundTrip)}
		if len(m.Ranks) > 0 {
			one.Run = byUUID[m.Run.String()]
		}
		for _, d := range m.Devices {
			id, _ := hex.DecodeString(d.ID) // which unpackDevices has written
			one.Devices = append(one.Devices, &wire.OfferedDevice{Kind: d.Kind, Id: id, Name: d.Name, MemoryBytes: d.MemoryBytes,
				Kernels: d.Kernels})
		}
		for _, rank := range m.Ranks {
			one.Ranks = append(one.Ranks, apiwire.Small(rank))
		}
		reply.Members = append(reply.Members, one)
	}
	for _, w := range c.unreachable.list(time.Now()) {
		reply.Unreachable = append(reply.Unreachable, &wire.UnreachableWorker{Name: w.Name, Address: w.Address, Error: w.Error,
			AskedNs: clock.At(w.Asked).UnixNano()})
	}
	return reply
}
