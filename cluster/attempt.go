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
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// busy returns the shares that have ranks.
func (a *attempt) busy() (some []*share) {
	for _, s := range a.shares {
		if len(s.ranks) > 0 {
			some = append(some, s)
		}
	}
	return some
}

// attempt is one attempt at a run, on the workers that were chosen for it.
type attempt struct {
	c          *Coordinator
	cfg        *config.Config
	id         uuid.UUID
	generation uint64
	run        uuid.UUID
	shares     []*share
	answers    chan answer
	// tellWaiting reports what the run waits for.
	tellWaiting func(text string)
	ended       time.Time // when the release of its workers began; zero: not yet; c.mu
	renewed     bool      // another attempt continues it; c.mu
	cuts        *cuts
	apart       string // a warning about tensor groups on several hosts, or about workers without ranks; "": none

	renewal *renewal // nil: a new attempt
	shadows plan.Shadows

	as    plan.Assignment    // set by Assign
	tried map[uuid.UUID]bool // see hosts.tried; c.mu

	preparing map[uuid.UUID]*preparing // by reserved worker; c.mu

	mu    sync.Mutex
	asked map[uuid.UUID]bool // workers for whose leave it was asked to write a checkpoint
	moves int                // how often the ranks of leaving workers were about to move; the last counts
	// regroups: it ends with a checkpoint, because workers leave that cannot be replaced at once, or because it only saves state.
	regroups   bool
	abandons   *time.Timer // of the step in progress, in favor of workers that exit soon; nil: none does
	abandonsAt time.Time
	rebalances bool           // it ends at its next checkpoint, to use free workers
	looked     time.Time      // when it last looked for free workers
	weighed    []*workerState // the free workers that it found last
	actors     *actors.Run
	err        error // of the first worker that failed
	gone       chan struct{}
	memory     map[int]int64   // peak tensor memory of each rank, in bytes
	told       map[string]bool // workers with a reported broken link
}

// share is a worker's part of an attempt.
type share struct {
	beat.Member
	ranks   []int                 // set with the attempt's mu held, since beats read them
	devices []*wire.OfferedDevice // of each rank, if some compute on a GPU
	kept    uuid.UUID             // the attempt of which it has kept its stages, in a renewal; zero: the one before

	doing string // what its stages did in the last beat
	lost  bool   // the worker has failed, or has given up its ranks; the attempt's mu
	why   error  // that it is lost for
	freed bool   // it was told to release its ranks, because it is lost
}

// peer returns the worker's name and addresses, for other processes.
func (s *share) peer() *wire.Peer {
	return &wire.Peer{Name: s.Name, Incarnation: s.ID[:], Address: s.Address, DataAddress: s.DataAddress}
}

// host returns the address of the worker's host.
func (s *share) host() string { return hostOf(s.Address) }

func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return host
}

// ranksOf returns a worker's ranks. mu is held, or no other goroutine divides the ranks.
func (a *attempt) ranksOf(worker uuid.UUID) []int {
	for _, s := range a.shares {
		if s.ID == worker {
			return s.ranks
		}
	}
	return nil
}

// busyAt reports whether a worker has ranks.
func (a *attempt) busyAt(worker uuid.UUID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.ranksOf(worker)) > 0
}

// Path returns the kernels' name. All workers have the same kernels, or the config names them.
func (a *attempt) Path() string { return device.PathOf(a.cfg, kernelsOf(a.cfg, a.shares[0].Offer)) }

// Devices names the kinds of devices that the ranks compute on.
func (a *attempt) Devices() string { return deviceNames(a.cfg) }

// Threads returns the workers' cores in total. If all ranks compute on GPUs, each worker counts as one thread.
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

// processes returns the workers that have ranks, by address.
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
