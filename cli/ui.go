package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/ui"
)

// usualUI is the default address of the page: a free port on loopback.
const usualUI = "127.0.0.1:0"

// uiFlags say where and how a page is served.
type uiFlags struct {
	address       string // "": not served
	folder        string // of the run whose page it is; "": not known here
	certFile, key string
}

func (o *uiFlags) setTLS(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.certFile, "tls-cert", "",
		"`file` with the server's certificate, PEM (default: a new one, unless the address is loopback)")
	cmd.Flags().StringVar(&o.key, "tls-key", "", "`file` with the certificate's private key, PEM")
}

func (a *app) newUI() *cobra.Command {
	var o uiFlags
	var open bool
	cmd := &cobra.Command{
		Use:   "ui DIR…",
		Short: "Show runs in a browser",
		Long: `Show runs in a browser: curves, also of several runs over each other, the pipeline of
recorded steps, layer norms and samples. DIR is a run's folder, or a folder of such folders,
such as runs. The page follows runs in progress, and new runs appear automatically. The
command only reads, and serves the page until Ctrl-C.

Access. On loopback every user of this machine can read the page. With any other --listen
the server uses TLS, and the printed link contains a read-only token. Without --tls-cert it
makes a certificate and prints its SHA-256 fingerprint; compare that in the browser.

See also: engine run --ui serves the page of a run while it trains, and controls the run.`,
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
	cmd.Flags().StringVar(&o.address, "listen", usualUI, "`HOST:PORT` to serve the page at; port 0 picks a free one")
	cmd.Flags().BoolVar(&open, "open", false, "open the page in a browser on this machine")
	o.setTLS(cmd)
	return cmd
}

// showRuns serves the page of folders until a signal stops it.
func (a *app) showRuns(ctx context.Context, dirs []string, o uiFlags, open bool) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := a.servePage(o, "--listen", false)
	if err != nil {
		return err
	}
	defer p.end(0)
	for _, dir := range dirs {
		if err := p.server.Open(dir); err != nil {
			return usagef("%w", folder.Missing(err, "DIR", "folder", dir))
		}
	}
	p.tell(func(link string) { a.printf("%s\n", link) })
	if open {
		// Without the token: the list of processes would show it.
		if err := openBrowser(ctx, p.listener.Link("")); err != nil {
			say(a.err, "can't start a browser: %v; open the link yourself", err)
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-p.served:
		return err
	}
}

// openBrowser opens a link in the system's browser.
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
	go func() { _ = cmd.Wait() }() // ends with the command, or with ctx
	return nil
}

// page is a running server of the page.
type page struct {
	app      *app
	server   *ui.Server
	listener *ui.Listener
	token    string
	folder   string // of the run; "": not known here
	cancel   context.CancelFunc
	served   chan error
	once     sync.Once
}

// servePage starts a server at the address of a flag. Control needs a token, and so does reading from other machines.
func (a *app) servePage(o uiFlags, flag string, control bool) (*page, error) {
	l, err := ui.Listen(o.address, o.certFile, o.key)
	if err != nil {
		return nil, usagef("serve the page: %w", busy(err, flag))
	}
	p := &page{app: a, listener: l, folder: o.folder, served: make(chan error, 1)}
	if control || l.Remote {
		p.token = ui.NewToken()
	}
	p.server, err = ui.New(ui.Options{Token: p.token, Remote: l.Remote, Hosts: []string{l.Host()}, Version: describeBuild().Version,
		Logger: a.logger(slog.LevelWarn)})
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

// tell prints the link, and the fingerprint of a new certificate.
func (p *page) tell(print func(link string)) {
	print(p.listener.Link(p.token))
	if p.listener.Fingerprint != "" {
		say(p.app.err, "SHA-256 fingerprint of the page's certificate: %s", p.listener.Fingerprint)
	}
}

// end stops the server. It first waits up to patience for the page to learn how the run ended.
func (p *page) end(patience time.Duration) {
	if p == nil {
		return
	}
	p.once.Do(func() {
		if patience > 0 {
			if p.folder != "" {
				defer say(p.app.err, "the run's page has ended; engine ui %s shows the run again", words.OneLine(filepath.Dir(p.folder)))
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			p.server.Wait(ctx)
			cancel()
		}
		p.server.Close()
		p.cancel()
		if err := <-p.served; err != nil {
			say(p.app.err, "serve the page: %v", err)
		}
	})
}

// pagePatience is how long the end of a run waits for its page to receive it.
const pagePatience = 2 * time.Second

// withPage serves the page of a run that is about to start. It returns nil if no page is requested.
func (a *app) withPage(o uiFlags) (*page, error) {
	if o.address == "" {
		return nil, nil
	}
	if o.address != ownUI {
		return a.servePage(o, "--ui", true)
	}
	if o.folder != "" {
		if address, err := pageAddress(o.folder); err == nil {
			o.address = address
			if p, err := a.servePage(o, "--ui", true); err == nil {
				return p, nil
			}
		}
	}
	o.address = usualUI // another program has the port
	return a.servePage(o, "--ui", true)
}

// attach shows a run on the page, and the other runs in the folder that it is in. If that fails, the run continues
// without the page.
func (p *page) attach(name string, run ui.Run) {
	if p == nil {
		return
	}
	if err := p.server.Attach(name, run); err != nil {
		say(p.app.err, "the page can't show the run: %v; the run continues", err)
		return
	}
	if p.folder != "" {
		if err := p.server.Open(filepath.Dir(p.folder)); err != nil {
			say(p.app.err, "the page can't show the other runs: %v", err)
		}
	}
	p.tell(func(link string) { say(p.app.err, "the run's page: %s", link) })
}

// controlled is a followed run of a coordinator, which carries out its changes.
type controlled struct {
	*cluster.Followed
	ctx    context.Context
	client *cluster.Client
}

// changeTime is how long the coordinator may take to answer.
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
