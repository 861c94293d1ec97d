package cluster

import (
	"context"
	"encoding/hex"
	"errors"
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

// Member is a worker, as its latest beat described it.
type Member struct {
	Name, Address string
	Cores         int
	MemoryBytes   int64
	Kernels       string
	Devices       []OfferedDevice // its devices other than the CPU
	Joined, Heard time.Time       // Heard: its latest beat
	ClockAhead    time.Duration   // how far its clock is ahead of the coordinator's
	RoundTrip     time.Duration
	Run           uuid.UUID // the run whose ranks it computes, or whose state it keeps until others have it; Nil: none
	Ranks         []int
	Leaving       bool // it was told to stop, and leaves when its run has written a checkpoint
}

// workerState adds to a member the attempt that it has ranks in.
type workerState struct {
	beat.Member
	attempt *attempt  // the attempt whose ranks it computes; nil: none
	leaving bool      // it was told to stop, and gets no more ranks
	exits   bool      // it has said so itself, and exits soon
	moveBy  time.Time // when its ranks must move at the latest; zero: no limit
	wanted  *attempt  // the attempt that ends at its next checkpoint so that the run can use this worker; nil: none
	// reserved is the attempt that gives it the ranks of a worker that leaves, when its step has ended; nil: none.
	reserved *attempt
	due      []int // the ranks that it is reserved for
}

// heard is what beats say about a worker that joins or leaves.
type heard struct {
	beat.Member
	why error // why it left; nil: it joins
}

// Members lists the workers in the order in which they joined.
func (c *Coordinator) Members() []Member {
	var all []Member
	for _, m := range c.beats.Members() {
		w := Member{Name: m.Name, Address: m.Address, Cores: int(m.Offer.GetCores()), MemoryBytes: m.Offer.GetMemoryBytes(),
			Kernels: m.Offer.GetKernels(), Devices: unpackDevices(m.Offer.GetDevices()),
			Joined: m.Joined, Heard: m.Heard, ClockAhead: m.Offset, RoundTrip: m.RoundTrip}
		c.mu.Lock()
		if s := c.workers[m.ID]; s != nil {
			if w.Leaving = s.leaving; s.attempt != nil {
				w.Run, w.Ranks = s.attempt.run, s.attempt.computes(m.ID)
			}
		}
		c.mu.Unlock()
		all = append(all, w)
	}
	return all
}

// Wait waits until that many workers have joined, or ctx ends.
func (c *Coordinator) Wait(ctx context.Context, workers int) error {
	for {
		c.mu.Lock()
		n, changed := c.staying(), c.changed
		c.mu.Unlock()
		if n >= workers {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %d of %d workers have joined: %w", plan.ErrNoRoom, n, workers, context.Cause(ctx))
		}
	}
}

// admit makes a process a member, if it may become one.
func (c *Coordinator) admit(h *wire.Hello, _ string) error {
	if err := c.refuses(h); err != nil {
		return err
	}
	for _, m := range c.beats.Members() { // refuses has checked that these are disconnected
		switch {
		case m.Name == h.GetWorker().GetName():
			c.beats.Expel(m.ID, fmt.Errorf("%w: it has restarted", beat.ErrDead))
		case sharesAddress(h.GetWorker(), m):
			c.beats.Expel(m.ID, fmt.Errorf("%w: worker %q now has its address", beat.ErrDead, h.GetWorker().GetName()))
		}
	}
	c.names.came(h.GetWorker().GetName())
	return c.mesh.SetPeer(h.GetWorker())
}

// refuses says why a process may not become a member: it runs a different build, or it has the name or the address of
// another process and would get that process's messages.
func (c *Coordinator) refuses(h *wire.Hello) error {
	registered := sameRegistered(h.GetOffer())
	if h.GetBuild() != c.build {
		build := fmt.Errorf("build mismatch: the worker runs %.200q, the coordinator %q; the trained bits depend on the build, so use the same executable everywhere", h.GetBuild(), c.build)
		if registered != nil { // it says more
			return fmt.Errorf("%w; %w", registered, build)
		}
		return build
	}
	if registered != nil {
		return fmt.Errorf("%w; a program must register the same things at every start", registered)
	}
	w := h.GetWorker()
	if sharesAddress(w, beat.Member{Address: c.self.GetAddress(), DataAddress: c.self.GetDataAddress()}) {
		return fmt.Errorf("its address %s is the coordinator's own", w.GetAddress())
	}
	for _, m := range c.beats.Members() {
		heard := time.Since(m.Heard).Seconds()
		switch {
		case !m.Connected:
		case m.Name == w.GetName(): // two processes have the same key
			return fmt.Errorf("%w: worker %q at %s has the same name and the same key, and was heard %.1f s ago; was --cert-file copied? Each worker needs its own certificate",
				beat.ErrLater, m.Name, m.Address, heard)
		case sharesAddress(w, m):
			return fmt.Errorf("its address %s is that of worker %q, which was heard %.1f s ago; listen at another address (--listen, --advertise)",
				w.GetAddress(), m.Name, heard)
		}
	}
	return nil
}

// sharesAddress reports whether a process has one of a member's addresses.
func sharesAddress(w *wire.Peer, m beat.Member) bool {
	own := []string{w.GetAddress(), w.GetDataAddress()}
	taken := func(address string) bool { return address != "" && slices.Contains(own, address) }
	return taken(m.Address) || taken(m.DataAddress)
}

// joined and gone update the list of members from beats.

func (c *Coordinator) joined(m beat.Member) {
	c.mu.Lock()
	c.heard[m.ID] = heard{Member: m}
	c.mu.Unlock()
	if err := c.members.Add(m.ID, m.Address); err != nil {
		c.log.Error("can't add a worker to the list of members", "worker", m.Name, "err", err)
	}
}

func (c *Coordinator) gone(m beat.Member, why error) {
	c.mu.Lock()
	c.heard[m.ID] = heard{m, why}
	c.mu.Unlock()
	c.members.Remove(m.ID)
}

// memberships handles changes of the list of members.
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
	c.joins++
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
	if errors.Is(why, beat.ErrGoodbye) {
		c.left++
	} else {
		c.failed++
	}
	maps.DeleteFunc(c.apart, func(pair [2]uuid.UUID, until time.Time) bool {
		return pair[0] == id || pair[1] == id || time.Now().After(until)
	})
	c.tell()
	c.mu.Unlock()
	c.mesh.Forget(id)
	c.log.Warn("worker left", "worker", m.Name, "address", m.Address, "heard_s", time.Since(m.Heard).Seconds(), "why", why)
	if w != nil && w.attempt != nil {
		w.attempt.lost(m, why)
	}
}

// tell wakes the goroutines that wait for workers. mu is held.
func (c *Coordinator) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// OfferedDevice is one of a worker's devices other than the CPU.
type OfferedDevice struct {
	Kind        string `json:"kind"`
	ID          string `json:"id"` // the same in every process that sees it
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memory_bytes"`
	Kernels     string `json:"kernels"`
}

// limitDevices bounds the devices that an offer may have; more are ignored.
const limitDevices = 64

// unpackDevices returns the devices that a worker offers.
func unpackDevices(all []*wire.OfferedDevice) []OfferedDevice {
	var devices []OfferedDevice
	for _, d := range all[:min(len(all), limitDevices)] {
		devices = append(devices, OfferedDevice{d.GetKind(), hex.EncodeToString(d.GetId()), d.GetName(), d.GetMemoryBytes(), d.GetKernels()})
	}
	return devices
}

// packMembers describes the workers for a reply.
func (c *Coordinator) packMembers() *wire.MembersReply {
	byUUID := c.runs.shortIDs()
	reply := &wire.MembersReply{TimeNs: clock.Now().UnixNano()}
	for _, m := range c.Members() {
		one := &wire.MemberStatus{Name: m.Name, Address: m.Address, Cores: apiwire.Small(m.Cores), MemoryBytes: m.MemoryBytes, Kernels: m.Kernels,
			JoinedNs: clock.At(m.Joined).UnixNano(), HeardNs: clock.At(m.Heard).UnixNano(),
			ClockAheadNs: int64(m.ClockAhead), RoundTripNs: int64(m.RoundTrip), Leaving: m.Leaving, Run: byUUID[m.Run.String()]}
		for _, d := range m.Devices {
			id, _ := hex.DecodeString(d.ID) // unpackDevices wrote it
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
