package beat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/wire"
)

// ErrRefused: the coordinator does not take this process as a member.
var ErrRefused = errors.New("the coordinator refuses this worker")

// errNotYet: it may take it when it asks again.
var errNotYet = fmt.Errorf("%w for now", ErrRefused)

// NotYet reports whether a refusal may be gone when the process asks again.
func NotYet(err error) bool { return errors.Is(err, errNotYet) }

// unreachableError is the coordinator's word that it can't reach this process. It is an ErrUnreachable.
type unreachableError struct{ text string }

func (e *unreachableError) Error() string   { return e.text }
func (e *unreachableError) Unwrap() []error { return []error{ErrRefused, ErrUnreachable} }

// ClientConfig is what a worker's end needs.
type ClientConfig struct {
	Dial  func(ctx context.Context) (net.Conn, error)
	Hello *wire.Hello
	// Welcomed is called when the coordinator has taken this process as a member, again
	// after each broken stream.
	Welcomed func(*wire.Welcome)
	Status   func() []*wire.StatusReply
	Wall     func() time.Time // this process's wall clock; nil: clock.Now. A test makes it wrong
	Final    func(error) bool // whether an error of Dial's ends it; nil: none does
	// Failed is told why a try to become a member, or to be one again, has failed, if there will be another one;
	// nil: nobody is told.
	Failed func(error)
	// Unreachable lists the processes that this one can't reach; nil: it reaches all.
	Unreachable func() []*wire.Unreachable
	// Leaving is closed when this process is told to end, and will leave soon; nil: nobody is told.
	Leaving <-chan struct{}
	Logger  *slog.Logger
}

// Client is a worker's end.
type Client struct {
	cfg   ClientConfig
	heard atomic.Pointer[time.Time] // with its monotonic reading: somebody may set the clock meanwhile
	// silence is the coordinator's, in ns; 0: there was no welcome yet.
	silence atomic.Int64
	clock   Clock
}

// NewClient makes one. Run does its work.
func NewClient(cfg ClientConfig) *Client {
	if cfg.Wall == nil {
		cfg.Wall = clock.Now
	}
	if cfg.Failed == nil {
		cfg.Failed = func(error) {}
	}
	if cfg.Unreachable == nil {
		cfg.Unreachable = func() []*wire.Unreachable { return nil }
	}
	c := &Client{cfg: cfg}
	c.hear()
	return c
}

// Quiet is for how long nothing was heard of the coordinator.
func (c *Client) Quiet() time.Duration { return time.Since(*c.heard.Load()) }

// hear notes that something was heard of the coordinator.
func (c *Client) hear() {
	now := time.Now()
	c.heard.Store(&now)
}

// Clock is the offset of the coordinator's clock to this one, and the round trip that it
// was measured by.
func (c *Client) Clock() (offset, roundTrip time.Duration) {
	return c.clock.Estimate()
}

// Run keeps the stream to the coordinator, dialling again whenever it breaks. It returns
// when ctx has ended, after a goodbye, or with ErrRefused.
func (c *Client) Run(ctx context.Context) error {
	c.hear()
	pause := redialFirst
	for {
		welcome, err := c.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrRefused), c.cfg.Final != nil && err != nil && c.cfg.Final(err):
			return err
		case welcome:
			pause = redialFirst
		default:
			c.cfg.Failed(err)
		}
		c.cfg.Logger.Debug("the stream to the coordinator broke", "err", err, "again_ms", pause.Milliseconds())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		most := redialMost
		if silence := time.Duration(c.silence.Load()); c.Quiet() < silence {
			most = min(redialMost, silence/soonPart)
		}
		pause = max(redialFirst, min(2*pause, most))
	}
}

// once keeps one stream, and reports whether the coordinator has welcomed it.
func (c *Client) once(ctx context.Context) (welcome bool, err error) {
	patience, every := helloTime, helloTime
	if silence := time.Duration(c.silence.Load()); silence > 0 {
		patience, every = min(helloTime, silence/hangUpPart), silence/dialPart
	}
	dialling, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := c.dial(dialling, every)
	if err != nil {
		return false, err
	}
	defer conn.Close() //nolint:errcheck // it has ended
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return false, err
	}
	if err := wire.WriteFrame(conn, c.cfg.Hello, LimitBeatBytes); err != nil {
		return false, err
	}
	var w wire.Welcome
	if err := wire.ReadFrame(conn, &w, LimitBeatBytes); err != nil {
		return false, err
	}
	if w.GetError() != "" {
		switch {
		case w.GetUnreachable():
			return false, &unreachableError{fmt.Sprintf("%.1000s", w.GetError())}
		case w.GetLater():
			return false, fmt.Errorf("%w: %.1000s", errNotYet, w.GetError())
		}
		return false, fmt.Errorf("%w: %.1000s", ErrRefused, w.GetError())
	}
	silence := time.Duration(w.GetSilenceS() * float64(time.Second))
	if silence < 10*time.Millisecond || silence > time.Hour {
		return false, fmt.Errorf("%w: it names a silence of %g s", ErrRefused, w.GetSilenceS())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return false, err
	}
	c.hear()
	c.silence.Store(int64(silence))
	c.cfg.Welcomed(&w)
	return true, c.follow(ctx, newStream(conn, &c.clock, c.cfg.Wall), silence)
}

// dial opens a connection: by a new attempt every now and then, beside those that go on.
func (c *Client) dial(ctx context.Context, every time.Duration) (conn net.Conn, err error) {
	type dialled struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan dialled)
	begin := func() {
		go func() { // ends with ctx, and is waited for below
			conn, err := c.cfg.Dial(ctx)
			results <- dialled{conn, err}
		}()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	begin()
	running := 1
	for conn == nil && running > 0 {
		select {
		case r := <-results:
			running--
			conn, err = r.conn, r.err
		case <-tick.C:
			if running < limitDials && ctx.Err() == nil {
				begin()
				running++
			}
		}
	}
	cancel()
	for range running {
		if r := <-results; r.err == nil {
			_ = r.conn.Close()
		}
	}
	return conn, err
}

// follow beats until the stream or ctx ends. Where nothing comes for a part of the silence
// it hangs up, and a new stream is dialled: TCP waits longer and longer before it sends again
// what a broken network has lost, and would still be waiting when the network is back.
func (c *Client) follow(ctx context.Context, s *stream, silence time.Duration) error {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with the stream
		defer close(done)
		defer s.conn.Close() //nolint:errcheck // it has ended
		tick := time.NewTicker(beatEvery(silence))
		defer tick.Stop()
		leaving := c.cfg.Leaving
		for leaves := false; ; {
			goodbye := ctx.Err() != nil
			if err := s.beat(&wire.Beat{Status: c.cfg.Status(), Unreachable: c.cfg.Unreachable(), Goodbye: goodbye, Leaving: leaves},
				silence); err != nil {
				return
			}
			if goodbye { // closed at once, the stream might take it with it
				select {
				case <-ended:
				case <-time.After(goodbyeTime):
				}
				return
			}
			select {
			case <-tick.C:
			case <-leaving: // the coordinator is told at once
				leaving, leaves = nil, true
			case <-ctx.Done():
			}
		}
	}()
	var err error
	for err == nil {
		_, err = s.read(silence/hangUpPart, c.hear)
	}
	close(ended)
	_ = s.conn.Close()
	<-done
	return err
}
