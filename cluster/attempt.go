package cluster

import (
	"net"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/wire"
)

// busy are the shares that have ranks.
func (a *attempt) busy() (some []*share) {
	for _, s := range a.shares {
		if len(s.ranks) > 0 {
			some = append(some, s)
		}
	}
	return some
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

// processes are the workers that have ranks, by their addresses.
func (a *attempt) processes() map[string]uuid.UUID {
	at := make(map[string]uuid.UUID)
	for _, s := range a.busy() {
		at[s.Address] = s.ID
	}
	return at
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

func (a *attempt) shareOf(worker uuid.UUID) *share {
	for _, s := range a.shares {
		if s.ID == worker {
			return s
		}
	}
	return nil
}
