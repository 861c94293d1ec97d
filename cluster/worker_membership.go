package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/cluster/internal/beat"
	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/internal/wire"
)

// membership is a worker's time as a member under one incarnation (a fresh id). Messages name the
// incarnations of their sender and receiver, and each attempt belongs to the membership that it was
// assigned to. So nothing of one membership reaches another.
type membership struct {
	*worker
	id     uuid.UUID
	mesh   *mesh.Mesh
	client *beat.Client
	leased context.Context // ends with the membership
	stop   func()          // ends it

	mu          sync.Mutex
	far         *farError // set when it has ended because the coordinator's own address is unreachable
	welcomed    bool
	coordinator *wire.Peer
	silence     time.Duration // after which a process counts as failed
	parts       map[uuid.UUID]*part
	gaveUp      map[uuid.UUID]string // by attempt: why it released its ranks, computed or kept, until the coordinator releases the attempt
	leaving     bool                 // it takes no more orders
	saved       map[uuid.UUID]*int64 // by run here, when it leaves: step of the checkpoint from which it continues elsewhere; nil: none yet
	kept        *keptPart            // stages of an ended attempt; nil: none
	prepares    *preparation         // for ranks that a worker that leaves still has; nil: none
	running     sync.WaitGroup       // of its goroutines
}

// membership runs a membership until the coordinator refuses it, or ctx ends. It reports whether
// the coordinator had welcomed the worker.
func (w *worker) membership(ctx context.Context) (welcomed bool, err error) {
	m := &membership{worker: w, parts: make(map[uuid.UUID]*part), gaveUp: make(map[uuid.UUID]string)}
	if m.id, err = uuid.NewV7(); err != nil {
		return false, err
	}
	offer, err := w.offer()
	if err != nil {
		return false, err
	}
	m.mesh = mesh.New(mesh.Config{Self: m.id, Name: w.cfg.Name, System: w.system, Secure: true, Streams: w.cfg.LaneStreams, Control: m.control,
		Awake: w.awake, Logger: w.log, Tap: w.cfg.tap,
		Broken: func(id uuid.UUID, err error) {
			w.log.Error("can't send to a process any more", "process", id, "err", err)
			go m.giveUp("a message could not be sent") // the sender may hold locks that giveUp needs
		}}, w.transport)
	w.port.Use(m.mesh)
	m.client = beat.NewClient(beat.ClientConfig{
		Dial: func(ctx context.Context) (net.Conn, error) { return w.dialCoordinator(ctx, beatProtocol) },
		Hello: &wire.Hello{Worker: &wire.Peer{Name: w.cfg.Name, Incarnation: m.id[:], Address: w.transport.Address(),
			DataAddress: w.transport.DataAddress()}, Build: w.build, Offer: offer},
		Welcomed: m.welcome, Status: m.status, Unreachable: m.unreachable, Final: final, Logger: w.log,
		Failed: func(err error) { w.obstacles.tell(w.log, w.cfg.Join, err) },
		Wall:   w.cfg.wallNow, Leaving: ctx.Done(), Grace: w.cfg.Grace, Awake: w.awake,
	})
	w.cfg.Monitor.use(w, m)
	defer w.cfg.Monitor.use(w, nil)
	leased, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.leased, m.stop = leased, stop
	m.running.Add(3)
	go func() { // ends with leased
		defer m.running.Done()
		select {
		case <-ctx.Done():
			m.drain(leased)
			stop()
		case <-leased.Done():
		}
	}()
	go func() { // ends with leased
		defer m.running.Done()
		m.minds(leased)
	}()
	go func() { // ends with leased
		defer m.running.Done()
		w.logs.run(leased, func(ctx context.Context) (net.Conn, error) { return w.dialCoordinator(ctx, logProtocol) })
	}()
	err = m.client.Run(leased)
	stop()
	m.mu.Lock()
	m.leaving = true
	if welcomed = m.welcomed; m.far != nil {
		err = m.far
	}
	m.mu.Unlock()
	m.giveUp("the membership has ended")
	m.running.Wait()
	w.port.Use(nil)
	m.mesh.Close()
	return welcomed, err
}

// welcome handles the coordinator's message that this worker is a member. A new coordinator does
// not know the attempts here.
func (w *membership) welcome(m *wire.Welcome) {
	w.mu.Lock()
	was := w.coordinator
	w.coordinator, w.welcomed = m.GetCoordinator(), true
	if next := m.GetCoordinator().GetIncarnation(); string(next) != string(w.numbering) {
		w.numbering, w.highest = next, 0 // each coordinator numbers its own attempts
	}
	for _, p := range w.parts { // the last beats may not have arrived
		clear(p.told)
	}
	w.silence = time.Duration(m.GetSilenceS() * float64(time.Second))
	w.mu.Unlock()
	id, _ := uuid.FromBytes(m.GetCoordinator().GetIncarnation()) // SetPeer checks it
	if was != nil && string(was.GetIncarnation()) != string(id[:]) {
		if old, err := uuid.FromBytes(was.GetIncarnation()); err == nil {
			w.mesh.Forget(old)
		}
		w.giveUp("the coordinator has restarted") // before the new one can send an order
	}
	if err := w.mesh.SetPeer(m.GetCoordinator()); err != nil {
		w.log.Error("the coordinator's welcome is invalid", "err", err)
		return
	}
	w.mesh.Reconnected()
	w.obstacles.gone()
	w.cfg.Monitor.joined()
	w.log.Info("joined the cluster", "coordinator", m.GetCoordinator().GetAddress(), "address", w.transport.Address())
	if was == nil || string(was.GetIncarnation()) != string(id[:]) {
		w.running.Add(1)
		go func() { // ends with leased, or within beat.ReachTime
			defer w.running.Done()
			w.dialBack(m.GetCoordinator())
		}()
	}
}

// minds releases the ranks when the coordinator was silent for longer than their lease.
func (w *membership) minds(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		quiet := w.client.Quiet()
		w.mu.Lock()
		if w.kept != nil && quiet >= w.kept.p.lease {
			w.dropKept("the coordinator was silent")
		}
		if w.prepares != nil && quiet >= w.prepares.p.lease {
			w.dropPrepared("the coordinator was silent")
		}
		for _, p := range w.parts {
			if quiet >= p.lease {
				p.giveUp(fmt.Sprintf("the coordinator was silent for %.1f s; cluster.lease_s is %g", quiet.Seconds(), p.lease.Seconds()))
			}
		}
		w.mu.Unlock()
	}
}

// giveUp ends the stages of all attempts here.
func (w *membership) giveUp(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.parts {
		p.giveUp(why)
	}
	w.dropKept(why)
	w.dropPrepared(why)
}
