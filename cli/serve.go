package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/infer/serve"
	"github.com/troupe-ml/troupe/internal/base/guard"
	"github.com/troupe-ml/troupe/internal/base/words"
	figures "github.com/troupe-ml/troupe/telemetry/process"
	"github.com/troupe-ml/troupe/telemetry/prom"
	"github.com/troupe-ml/troupe/ui"
)

// serveFlags are the flags of engine serve.
type serveFlags struct {
	model     troupe.ModelOptions
	at        uiFlags
	tokenFile string
	name      string
	batch     troupe.BatchOptions
	tokens    int
	grace     time.Duration
	metrics   metricsFlags
}

// usualServe is the default address of engine serve.
const usualServe = "127.0.0.1:8000"

func (a *app) newServe() *cobra.Command {
	var o serveFlags
	cmd := &cobra.Command{
		Use:   "serve [DIR]",
		Short: "Answer HTTP requests with a trained model, as OpenAI's API does",
		Long: `Answer HTTP requests with a trained model over the routes of OpenAI's API, so that its
clients can use the model: /v1/chat/completions, /v1/completions and /v1/models, whole or
streamed. The model generates up to --batch texts at once; a request may join at any time,
and up to --queue more wait. The command runs until Ctrl-C or SIGTERM. It then takes no new
requests, and those in progress have --grace to finish.

Requests. The keys are those of the API, and top_k, min_p and repetition_penalty. A key
that is not supported is refused with its name. The defaults come from the model's
generation_config.json, as in engine generate. Chats use the model's chat template, and calls
of functions are parsed in its format.

Access. On loopback every program of this machine can use the server. With any other
--listen the server uses TLS and needs a token; without --token-file it prints a new one.
Clients send it as their API key. /healthz and /readyz need no token.

See also: engine generate (one text, or the prompts of a file), engine export.`,
		Example: `  engine serve --from runs/run
  engine serve --from DIR --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem --token-file token
  curl localhost:8000/v1/completions -H 'Content-Type: application/json' -d '{"model": "run", "prompt": "Once"}'`,
		Args:              takesModel,
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if err := checkModelFlags(cmd, o.model); err != nil {
				return err
			}
			if err := o.check(); err != nil {
				return err
			}
			return a.serve(cmd.Context(), o)
		}),
	}
	modelFlags(cmd, &o.model)
	chatTemplateFlag(cmd, &o.model)
	f := cmd.Flags()
	f.StringVar(&o.at.address, "listen", usualServe, "`HOST:PORT` to serve at; port 0 picks a free one")
	o.at.setTLS(cmd)
	f.StringVar(&o.tokenFile, "token-file", "",
		"`file` with the token that requests need (default: a new token, unless the address is loopback)")
	f.StringVar(&o.name, "name", "", "`name` of the model in requests (default: that of its folder)")
	f.IntVar(&o.batch.Texts, "batch", usualBatch, "most `texts` to generate at once")
	f.IntVar(&o.batch.Waiting, "queue", 64, "most `texts` that wait; further requests get the status 429")
	f.IntVar(&o.tokens, "max-tokens", serve.LimitTokens, "most `tokens` of an answer")
	f.DurationVar(&o.grace, "grace", 30*time.Second, "`time` that requests in progress have to finish at the end")
	o.metrics.set(cmd)
	return cmd
}

func (o *serveFlags) check() error {
	switch {
	case o.at.address == "":
		return usagef("--listen is empty: give HOST:PORT, such as %s", usualServe)
	case o.batch.Texts < 1:
		return usagef("--batch %d: give 1 or more", o.batch.Texts)
	case o.batch.Waiting < 1:
		return usagef("--queue %d: give 1 or more", o.batch.Waiting)
	case o.tokens < 1:
		return usagef("--max-tokens %d: give 1 or more", o.tokens)
	case o.grace < 0:
		return usagef("--grace %v: give 0s or more", o.grace)
	}
	return o.metrics.check()
}

// serve answers requests until a signal.
func (a *app) serve(ctx context.Context, o serveFlags) (err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	token, err := readServeToken(o.tokenFile)
	if err != nil {
		return err
	}
	l, err := ui.Listen(o.at.address, o.at.certFile, o.at.key)
	if err != nil {
		return usagef("serve: %w", busy(err, "--listen"))
	}
	defer func() { _ = l.Close() }() // the server has closed it, unless it never started
	fresh := l.Remote && token == ""
	if fresh {
		token = guard.NewToken()
	}
	export, err := a.openExports("server", o.metrics.address, o.metrics.insecure)
	if err != nil {
		return err
	}
	defer export.close()
	b, err := troupe.OpenBatch(o.model, o.batch)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	d, err := b.Defaults()
	if err != nil {
		return err
	}
	if d.Warning != "" {
		a.warn(d.Warning)
	}
	name := o.name
	if name == "" {
		name = modelName(o.model.From)
	}
	s, err := serve.New(b, serve.Options{Name: name, Token: token, Remote: l.Remote, Hosts: []string{l.Host()}, Defaults: d,
		MaxTokens: o.tokens, Grace: o.grace,
		Build: describeBuild().Version, Log: func(text string) { say(a.err, "%s", text) }})
	if err != nil {
		return usagef("%w", err)
	}
	export.process(prom.NewProcess(figures.ServerFigures, s.State), s.Checks())
	a.printf("%s at %sv1\n", words.OneLine(name), l.Link(""))
	if l.Fingerprint != "" {
		say(a.err, "SHA-256 fingerprint of the server's certificate: %s", l.Fingerprint)
	}
	if fresh {
		a.printf("token %s\n", token)
	}
	return s.Serve(ctx, l)
}

// modelName is the name of a model's folder.
func modelName(from string) string {
	if abs, err := filepath.Abs(from); err == nil {
		from = abs
	}
	return filepath.Base(from)
}

// leastToken is the fewest bytes of a token that a file gives.
const leastToken = 16

// readServeToken reads a token from a file.
func readServeToken(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	file, err := os.Open(name)
	if err != nil {
		return "", usagef("--token-file: %w", err)
	}
	defer func() { _ = file.Close() }() // nothing was written
	b, err := io.ReadAll(io.LimitReader(file, guard.LimitTokenBytes+2))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(b))
	switch {
	case len(token) < leastToken || len(token) > guard.LimitTokenBytes:
		return "", usagef("--token-file %s: the token has %d bytes; give %d to %d", name, len(token), leastToken, guard.LimitTokenBytes)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", usagef("--token-file %s: the token must be one line of ASCII without spaces", name)
	}
	return token, nil
}
