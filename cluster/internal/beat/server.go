package beat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Reasons for the removal of a worker.
var (
	ErrGoodbye = errors.New("it left the cluster")
	ErrSilent  = errors.New("it has not answered")
	ErrDead    = errors.New("its process exited")
	ErrExpired = errors.New("the coordinator removed it before")

	// ErrLater is Admit's error for a process that may become a member later.
	ErrLater = errors.New("not yet")
	// ErrUnreachable is Reach's error for a process that can't be reached at the address that it advertises.
	ErrUnreachable = errors.New("the coordinator can't reach this worker")
)

// ServerConfig configures the coordinator's end. Its functions are called from the goroutines of
// streams, one after the other for each worker, and must not block for long.
type ServerConfig struct {
	Self    func() *wire.Peer
	Silence time.Duration
	// Reach is called before Admit, and says why the coordinator can't reach the greeting process: a connection may
	// work in one direction only. It may take ReachTime and run concurrently; nil: all processes can be reached.
	Reach func(ctx context.Context, h *wire.Hello, name string) error
	// Admit says why a process may not become a member; nil: it may. name is the name in its
	// certificate; "" without TLS.
	Admit func(h *wire.Hello, name string) error
	// Joined and Gone are called once for each incarnation, in this order.
	Joined func(Member)
	Gone   func(m Member, why error)
	// Status is called with what a member's actors are doing.
	Status func(m Member, s *wire.StatusReply)
	// Unreachable is called at each beat with the processes that a member can't reach, usually none. It may be nil.
	Unreachable func(m Member, far []*wire.Unreachable)
	// Leaving is called at each beat of a member that was told to stop, with the time that it waits until it leaves. It may be nil.
	Leaving func(id uuid.UUID, grace time.Duration)
	// Probe dials an address and returns the error.
	Probe  func(ctx context.Context, address string) error
	Awake  *clock.Awake // measures silences; nil: all time counts
	Logger *slog.Logger
}

// Server is the coordinator's end of the beats.
type Server struct {
	cfg     ServerConfig
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	// admitting is held while an incarnation becomes a member. A worker that redials before its first greeting was
	// read greets several times at once, and must become one member.
	admitting sync.Mutex

	mu      sync.Mutex
	members map[uuid.UUID]*member
	gone    []uuid.UUID // the last limitGone removed members
}

// Member is a worker, as its latest beat described it.
type Member struct {
	ID          uuid.UUID
	Name        string
	Address     string
	DataAddress string
	Remote      string // the address that its latest stream of beats came from
	Offer       *wire.Offer
	Joined      time.Time
	Heard       time.Time
	Connected   bool          // its stream of beats is open
	Offset      time.Duration // how far its clock is ahead
	RoundTrip   time.Duration
}

type member struct {
	Member
	clock  Clock
	stream *stream // nil: broken

	telling sync.Mutex // held while Joined or Gone is called, so that Joined comes first
	joined  bool       // Joined was called
}

// NewServer makes a server. Call Serve for each stream, and Close at the end.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{cfg: cfg, members: make(map[uuid.UUID]*member)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve serves a stream that a worker has opened, and returns when it has ended.
func (s *Server) Serve(conn net.Conn, name string) {
	defer conn.Close() //nolint:errcheck // it has ended
	s.mu.Lock()
	if s.ctx.Err() != nil {
		s.mu.Unlock()
		return
	}
	s.running.Add(1) // never while Close waits
	s.mu.Unlock()
	defer s.running.Done()
	stop := context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	defer stop()
	m, st, err := s.hello(conn, name)
	if m == nil {
		level := slog.LevelWarn
		if errors.Is(err, ErrUnreachable) { // the worker keeps trying; Reach has logged it
			level = slog.LevelDebug
		}
		s.cfg.Logger.Log(s.ctx, level, "refused a worker", "from", conn.RemoteAddr(), "name", name, "err", err)
		return
	}
	if err == nil { // otherwise it is a member that has not read its welcome; it redials or has failed
		err = s.follow(m, st)
	}
	s.mu.Lock()
	if m.stream != nil && m.stream.conn == conn {
		m.stream = nil
	}
	broken := m.stream == nil && s.members[m.ID] == m
	heard := m.Heard
	s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil || !broken: // !broken: it has redialed
	case errors.Is(err, ErrGoodbye):
		s.Expel(m.ID, ErrGoodbye)
	case s.cfg.Awake.Since(heard) >= s.cfg.Silence:
		s.Expel(m.ID, fmt.Errorf("%w for %.1f s", ErrSilent, s.cfg.Awake.Since(heard).Seconds()))
	default:
		s.probe(m)
	}
}

// hello makes the process at the other end a member, or finds the member that it already is. It
// returns a member with an error if the welcome could not be sent.
func (s *Server) hello(conn net.Conn, name string) (*member, *stream, error) {
	if err := conn.SetDeadline(time.Now().Add(helloTime)); err != nil {
		return nil, nil, err
	}
	// The worker sends beats only after the welcome, so none can be in the buffer yet.
	var h wire.Hello
	if err := wire.ReadFrame(conn, &h, LimitBeatBytes); err != nil {
		return nil, nil, fmt.Errorf("read its greeting: %w", err)
	}
	m, err := s.admit(&h, name)
	answer := &wire.Welcome{Coordinator: s.cfg.Self(), SilenceS: s.cfg.Silence.Seconds()}
	if err != nil {
		answer.Error, answer.Later, answer.Unreachable = err.Error(), errors.Is(err, ErrLater), errors.Is(err, ErrUnreachable)
	}
	if werr := wire.WriteFrame(conn, answer, LimitBeatBytes); err == nil {
		err = werr
	}
	if m == nil {
		return nil, nil, err
	}
	if derr := conn.SetDeadline(time.Time{}); err == nil {
		err = derr
	}
	m.telling.Lock()
	defer m.telling.Unlock()
	s.mu.Lock()
	if s.members[m.ID] != m { // it was removed meanwhile
		s.mu.Unlock()
		return nil, nil, ErrExpired
	}
	if m.stream != nil {
		_ = m.stream.conn.Close()
	}
	m.stream, m.Remote = newStream(conn, &m.clock, clock.Now, s.cfg.Awake), conn.RemoteAddr().String()
	st, now := m.stream, m.Member
	s.mu.Unlock()
	if !m.joined {
		if m.joined = true; s.cfg.Joined != nil {
			s.cfg.Joined(now)
		}
	}
	return m, st, err
}

func (s *Server) admit(h *wire.Hello, name string) (m *member, err error) {
	id, err := uuid.FromBytes(h.GetWorker().GetIncarnation())
	if err != nil {
		return nil, fmt.Errorf("the id of its incarnation has %d bytes, not 16", len(h.GetWorker().GetIncarnation()))
	}
	if name != "" && h.GetWorker().GetName() != name {
		return nil, fmt.Errorf("it gives the name %.100q, but its certificate has the name %q", h.GetWorker().GetName(), name)
	}
	if m, err := s.known(id); m != nil || err != nil {
		return m, err
	}
	if s.cfg.Reach != nil { // before admitting is locked, because it may take long
		ctx, cancel := context.WithTimeout(s.ctx, ReachTime)
		err := s.cfg.Reach(ctx, h, name)
		cancel()
		if err != nil {
			return nil, err
		}
	}
	s.admitting.Lock()
	defer s.admitting.Unlock()
	if m, err := s.known(id); m != nil || err != nil {
		return m, err
	}
	if err := s.cfg.Admit(h, name); err != nil {
		return nil, err
	}
	w := h.GetWorker()
	now := time.Now()
	m = &member{Member: Member{ID: id, Name: w.GetName(), Address: w.GetAddress(), DataAddress: w.GetDataAddress(), Offer: h.GetOffer(),
		Joined: now, Heard: now}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members[id] = m
	return m, nil
}

// known returns the member with an incarnation; nil: there is none yet.
func (s *Server) known(id uuid.UUID) (*member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.Contains(s.gone, id) {
		return nil, ErrExpired
	}
	return s.members[id], nil
}

// follow reads a member's beats and sends beats to it until the stream ends.
func (s *Server) follow(m *member, st *stream) error {
	quit := make(chan struct{})
	defer close(quit)
	s.running.Add(1)
	go func() { // ends with the stream
		defer s.running.Done()
		tick := time.NewTicker(beatEvery(s.cfg.Silence))
		defer tick.Stop()
		for {
			if err := st.beat(&wire.Beat{}, s.cfg.Silence); err != nil {
				_ = st.conn.Close()
				return
			}
			select {
			case <-tick.C:
			case <-quit:
				return
			}
		}
	}()
	heard := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		m.Heard = time.Now()
		m.Offset, m.RoundTrip = m.clock.Estimate()
	}
	for {
		b, err := st.read(s.cfg.Silence, heard)
		switch {
		case err != nil:
			return err
		case b.GetGoodbye():
			return ErrGoodbye
		case b.GetLeaving() && s.cfg.Leaving != nil:
			s.cfg.Leaving(m.ID, grace(b.GetGraceS()))
		}
		s.mu.Lock()
		now := m.Member
		s.mu.Unlock()
		for _, status := range b.GetStatus() {
			if s.cfg.Status != nil {
				s.cfg.Status(now, status)
			}
		}
		if s.cfg.Unreachable != nil {
			s.cfg.Unreachable(now, b.GetUnreachable())
		}
	}
}

// limitGraceS bounds the time that a worker may want to wait, in seconds.
const limitGraceS = 1e9

func grace(s float64) time.Duration {
	if !(s > 0) {
		return 0
	}
	return time.Duration(min(s, limitGraceS) * float64(time.Second))
}

// probe dials a member whose stream broke, until it has redialed, its host refuses connections, or
// the silence is over. In the last two cases it removes the member.
func (s *Server) probe(m *member) {
	refused := 0
	for {
		s.mu.Lock()
		back, heard := m.stream != nil || s.members[m.ID] != m, m.Heard
		s.mu.Unlock()
		quiet := s.cfg.Awake.Since(heard)
		switch {
		case back || s.ctx.Err() != nil:
			return
		case quiet >= s.cfg.Silence:
			s.Expel(m.ID, fmt.Errorf("%w for %.1f s", ErrSilent, quiet.Seconds()))
			return
		case refused >= refusals:
			s.Expel(m.ID, fmt.Errorf("%w: %s refuses connections", ErrDead, m.Address))
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.cfg.Silence-quiet)
		if err := s.cfg.Probe(ctx, m.Address); errors.Is(err, syscall.ECONNREFUSED) {
			refused++
		} else {
			refused = 0
		}
		cancel()
		select {
		case <-time.After(probeEvery):
		case <-s.ctx.Done():
		}
	}
}

// Expel removes a member. The server refuses its incarnation from then on.
func (s *Server) Expel(id uuid.UUID, why error) {
	s.mu.Lock()
	m := s.members[id]
	if m == nil {
		s.mu.Unlock()
		return
	}
	delete(s.members, id)
	s.gone = append(s.gone, id)
	if len(s.gone) > limitGone {
		s.gone = slices.Delete(s.gone, 0, 1)
	}
	if m.stream != nil {
		_ = m.stream.conn.Close()
		m.stream = nil
	}
	last := m.Member
	s.mu.Unlock()
	m.telling.Lock()
	defer m.telling.Unlock()
	if m.joined { // otherwise Joined was not called, and will not be
		s.cfg.Gone(last, why)
	}
}

// Members lists the workers in the order in which they joined.
func (s *Server) Members() []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Member
	for _, m := range s.members {
		m.Connected = m.stream != nil
		all = append(all, m.Member)
	}
	slices.SortFunc(all, func(a, b Member) int { return a.Joined.Compare(b.Joined) })
	return all
}

// Member returns a worker; it is empty if the worker is not a member.
func (s *Server) Member(id uuid.UUID) Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[id]; m != nil {
		return m.Member
	}
	return Member{}
}

// Close ends all streams. It removes no member.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.running.Wait()
}
