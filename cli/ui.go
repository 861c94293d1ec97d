package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/ui"
)

// usualUI is where the page is served unless somebody says otherwise: on this machine, at a free port.
const usualUI = "127.0.0.1:0"

// uiFlags are where and how a page is served.
type uiFlags struct {
	address       string // "": nowhere
	certFile, key string
}

func (o *uiFlags) setTLS(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.certFile, "tls-cert", "",
		"certificate `file` (PEM) of the page's server; elsewhere than on loopback one is made if none is given")
	cmd.Flags().StringVar(&o.key, "tls-key", "", "`file` of its key (PEM)")
}

func (a *app) newUI() *cobra.Command {
	var o uiFlags
	var open bool
	cmd := &cobra.Command{
		Use:   "ui DIR…",
		Short: "Show runs in a browser",
		Long: `Show runs in a browser: the pipeline of recorded steps, curves, several runs over one
another, norms of layers and samples. DIR is a run's folder or one of such folders; runs
that other processes train are followed while they write, and new ones appear. Folders
are only read.

On loopback whoever is on this machine may look. With another --listen the server speaks
TLS, and the link that is printed has a token that reading takes. Without --tls-cert a
certificate is made, whose SHA-256 fingerprint is printed: compare it in the browser.

engine run --ui serves a run's page while it trains, with which it can be controlled, too.`,
		Example: `  engine ui runs
  engine ui runs/first runs/second --open
  engine ui runs --listen 10.0.0.1:8080`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("DIR is missing: %s", cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if o.address == "" {
				return usagef("--listen is empty: give HOST:PORT, such as %s", usualUI)
			}
			return a.showRuns(cmd.Context(), args, o, open)
		}),
	}
	cmd.Flags().StringVar(&o.address, "listen", usualUI, "`address` to serve the page at; port 0 is a free one")
	cmd.Flags().BoolVar(&open, "open", false, "open the page in this machine's browser")
	o.setTLS(cmd)
	return cmd
}

// showRuns serves the page of folders until a signal comes.
func (a *app) showRuns(ctx context.Context, dirs []string, o uiFlags, open bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := a.servePage(o, false)
	if err != nil {
		return err
	}
	defer p.end(0)
	for _, dir := range dirs {
		if err := p.server.Open(dir); err != nil {
			return usagef("%w", err)
		}
	}
	p.tell(func(link string) { a.printf("%s\n", link) })
	if open {
		// Without the token, which the list of processes would show.
		if err := openBrowser(ctx, p.listener.Link("")); err != nil {
			say(a.err, "the browser can't be started: %v; open the link in one", err)
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.served:
		return err
	}
}

// openBrowser has the system open a link.
func openBrowser(ctx context.Context, link string) error {
	name, args := "xdg-open", []string{link}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", link}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // ends with the browser's starter, or with ctx
	return nil
}

// page is a server of the page that is under way.
type page struct {
	app      *app
	server   *ui.Server
	listener *ui.Listener
	token    string
	cancel   context.CancelFunc
	served   chan error
	once     sync.Once
}

// servePage begins to serve. Control takes a token, and reading from other machines does.
func (a *app) servePage(o uiFlags, control bool) (*page, error) {
	l, err := ui.Listen(o.address, o.certFile, o.key)
	if err != nil {
		return nil, usagef("the page's server: %w", err)
	}
	p := &page{app: a, listener: l, served: make(chan error, 1)}
	if control || l.Remote {
		p.token = ui.NewToken()
	}
	p.server, err = ui.New(ui.Options{Token: p.token, Remote: l.Remote, Version: describeBuild().Version, Logger: a.logger(slog.LevelWarn)})
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	go func() { // ends with end
		defer close(p.served)
		p.served <- ui.Serve(ctx, l, p.server)
	}()
	return p, nil
}

// tell prints the link, and the fingerprint of a certificate that nobody knows.
func (p *page) tell(print func(link string)) {
	print(p.listener.Link(p.token))
	if p.listener.Fingerprint != "" {
		say(p.app.err, "SHA-256 of the page's certificate: %s", p.listener.Fingerprint)
	}
}

// end ends the server. It gives the page a moment to hear how its run has ended.
func (p *page) end(patience time.Duration) {
	if p == nil {
		return
	}
	p.once.Do(func() {
		if patience > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			p.server.Wait(ctx)
			cancel()
		}
		p.server.Close()
		p.cancel()
		if err := <-p.served; err != nil {
			say(p.app.err, "the page's server: %v", err)
		}
	})
}

// pagePatience is how long the end of a run waits for its page to hear of it.
const pagePatience = 2 * time.Second

// withPage serves the page of a run that is about to begin; nil: it is not asked for.
func (a *app) withPage(o uiFlags) (*page, error) {
	if o.address == "" {
		return nil, nil
	}
	return a.servePage(o, true)
}

// attach shows a run. That it is not shown does not hold it up.
func (p *page) attach(name string, run ui.Run) {
	if p == nil {
		return
	}
	if err := p.server.Attach(name, run); err != nil {
		say(p.app.err, "the run is not shown: %v", err)
		return
	}
	p.tell(func(link string) { say(p.app.err, "the run's page: %s", link) })
}

// controlled is a coordinator's run that is followed. Changes of it are asked of the coordinator.
type controlled struct {
	*cluster.Followed
	ctx    context.Context
	client *cluster.Client
}

// changeTime is how long a coordinator may take to answer.
const changeTime = 10 * time.Second

func (c controlled) Change(ch troupe.Change) error {
	if err := ch.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, changeTime)
	defer cancel()
	_, err := c.client.Change(ctx, c.ID, ch)
	return err
}
