package cli

import (
	"context"
	"sync"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/infer/serve"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/ui"
)

const (
	// liveAge is how old the weights may be that a request to a run in progress is answered with.
	liveAge = 2 * time.Second
	// liveGrace is how long requests in progress may take when the run has ended.
	liveGrace = 5 * time.Second
)

// liveServer answers requests with the weights of a run while it trains.
type liveServer struct {
	app      *app
	listener *ui.Listener
	cancel   context.CancelFunc // nil: it has not started
	served   chan error
	once     sync.Once
}

// listenLive listens for the requests to a run. It returns nil without an address.
func (a *app) listenLive(address string) (*liveServer, error) {
	if address == "" {
		return nil, nil
	}
	if !config.OnLoopback(address) {
		return nil, usagef("--serve %s: a run in progress is served on loopback only, such as %s; use engine serve for other addresses", address,
			usualServe)
	}
	l, err := ui.Listen(address, "", "")
	if err != nil {
		return nil, usagef("serve the run: %w", busy(err, "--serve"))
	}
	if l.Remote { // localhost may be the name of another address
		_ = l.Close() // nobody has connected
		return nil, usagef("--serve %s: this is %s, which other machines can reach; use %s", address, l.Addr(), usualServe)
	}
	return &liveServer{app: a, listener: l, served: make(chan error, 1)}, nil
}

// start answers requests with a run that has started.
func (s *liveServer) start(name string, r *troupe.Run) error {
	if s == nil {
		return nil
	}
	server, err := serve.New(r.Live(troupe.SnapshotOptions{MaxAge: liveAge}),
		serve.Options{Name: name, Hosts: []string{s.listener.Host()}, Grace: liveGrace,
			Build: describeBuild().Version, Log: s.app.warn})
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(context.Background())
	go func() { s.served <- server.Serve(ctx, s.listener) }() // ends with end
	say(s.app.err, "the run answers as model %s at %sv1", words.OneLine(name), s.listener.Link(""))
	return nil
}

// end stops the server.
func (s *liveServer) end() {
	switch {
	case s == nil:
	case s.cancel == nil:
		_ = s.listener.Close() // nobody has connected
	default:
		s.once.Do(func() {
			s.cancel()
			if err := <-s.served; err != nil {
				say(s.app.err, "serve the run: %v", err)
			}
		})
	}
}
