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

// ErrRefused: the coordinator does not accept this process as a member.
var ErrRefused = errors.New("the coordinator refused this worker")

// errNotYet: the coordinator may accept the process later.
var errNotYet = fmt.Errorf("%w for now", ErrRefused)

// NotYet reports whether the coordinator may accept the process later.
func NotYet(err error) bool { return errors.Is(err, errNotYet) }

// unreachableError says that the coordinator can't reach this process. It is an ErrRefused and an ErrUnreachable.
type unreachableError struct{ text string }

func (e *unreachableError) Error() string   { return e.text }
func (e *unreachableError) Unwrap() []error { return []error{ErrRefused, ErrUnreachable} }

// ClientConfig configures a worker's end.
type ClientConfig struct {
	Dial  func(ctx context.Context) (net.Conn, error)
	Hello *wire.Hello
	// Welcomed is called when the coordinator has accepted this process as a member, and again after
	// each broken stream.
	Welcomed func(*wire.Welcome)
	Status   func() []*wire.StatusReply // returns what the worker's actors are doing
	Wall     func() time.Time           // this process's wall clock; nil: clock.Now. A test makes it wrong
	Final    func(error) bool           // reports whether an error of Dial ends Run; nil: none does
	// Failed is called with the error of each failed try to become a member that another try follows. It may be nil.
	Failed func(error)
	// Unreachable lists the processes that this one can't reach; nil: it reaches all.
	Unreachable func() []*wire.Unreachable
	// Leaving is closed when this process is told to stop and will leave soon. It may be nil.
	Leaving <-chan struct{}
	Grace   time.Duration // how long it waits then until it leaves
	Awake   *clock.Awake  // measures silences; nil: all time counts
	Logger  *slog.Logger
}

// Client is a worker's end of the beats.
type Client struct {
	cfg   ClientConfig
	heard atomic.Pointer[time.Time] // with its monotonic reading, in case someone sets the clock
	// silence is the coordinator's silence in ns; 0: there was no welcome yet.
	silence atomic.Int64
	clock   Clock
}

// NewClient makes a client. Call Run to start it.
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

// Quiet returns how long the coordinator has been silent while this process was awake.
func (c *Client) Quiet() time.Duration { return c.cfg.Awake.Since(*c.heard.Load()) }

// hear notes that the coordinator has sent something.
func (c *Client) hear() {
	now := time.Now()
	c.heard.Store(&now)
}

// Clock returns the offset of the coordinator's clock from this one, and the round trip of the beat
// that measured it.
func (c *Client) Clock() (offset, roundTrip time.Duration) {
	return c.clock.Estimate()
}

// Run keeps a stream to the coordinator, and redials when it breaks. It returns nil after a goodbye
// when ctx has ended. It returns an error if the coordinator refuses this process (ErrRefused), or if
// Final says so.
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
		c.cfg.Logger.Debug("the connection to the coordinator broke", "err", err, "next_try_ms", pause.Milliseconds())
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

// once keeps one stream until it breaks, and reports whether the coordinator welcomed this process.
func (c *Client) once(ctx context.Context) (welcome bool, err error) {
	patience, every := helloTime, helloTime
	if silence := time.Duration(c.silence.Load()); silence > 0 && c.Quiet() < silence { // later a slow answer is better than none
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
		return false, fmt.Errorf("%w: its silence is %g s; want 0.01 to 3600", ErrRefused, w.GetSilenceS())
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return false, err
	}
	c.hear()
	c.silence.Store(int64(silence))
	c.cfg.Welcomed(&w)
	return true, c.follow(ctx, newStream(conn, &c.clock, c.cfg.Wall, c.cfg.Awake), silence)
}

// dial opens a connection. It starts another try regularly while earlier tries continue.
func (c *Client) dial(ctx context.Context, every time.Duration) (conn net.Conn, err error) {
	type dialled struct {
		conn net.Conn
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan dialled)
	begin := func() {
		go func() { // ends with ctx; dial waits for it below
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

// follow sends and reads beats until the stream or ctx ends. If nothing comes for a part of the
// silence, it closes the stream and the caller dials a new one: TCP retransmits after longer and
// longer pauses, and would still be waiting when a broken network is back.
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
			if err := s.beat(&wire.Beat{Status: c.cfg.Status(), Unreachable: c.cfg.Unreachable(), Goodbye: goodbye, Leaving: leaves,
				GraceS: c.cfg.Grace.Seconds()}, silence); err != nil {
				return
			}
			if goodbye { // closing the stream at once might discard the goodbye
				select {
				case <-ended:
				case <-time.After(goodbyeTime):
				}
				return
			}
			select {
			case <-tick.C:
			case <-leaving: // tell the coordinator at once
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
