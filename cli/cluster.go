package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/config"
	figures "github.com/troupe-ml/troupe/telemetry/process"
	"github.com/troupe-ml/troupe/telemetry/prom"
)

// tokenTTL is how long the tokens that a coordinator creates by itself are valid. It replaces a token that is valid for
// less than half of that time.
const tokenTTL = 24 * time.Hour

func (a *app) newCluster() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Start a coordinator, manage tokens and workers",
		Long: `Train on several machines. engine cluster start runs the coordinator on one host; engine
worker joins from each machine that computes; engine run --cluster trains on them.

The other commands manage join tokens and workers. engine ps, status, stop, pause, resume,
checkpoint and rate see and control the runs, as they do on one machine. They also have the
names of earlier versions: engine cluster pause, resume, checkpoint and rate.`}
	cmd.AddCommand(a.newClusterStart(), a.newClusterToken(), a.newClusterTokens(), a.newClusterRevoke(), a.newClusterRelease())
	for _, alias := range a.newChanges("cluster ") { // their names in earlier versions
		alias.Hidden = true
		cmd.AddCommand(alias)
	}
	asGroup(cmd)
	return cmd
}

// clusterFlags are the flags of `engine cluster start`.
type clusterFlags struct {
	cluster.Config
	silenceS, leaseS float64
	metrics          metricsFlags
}

func (a *app) newClusterStart() *cobra.Command {
	var o clusterFlags
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start the coordinator of a cluster",
		Long: `Start the coordinator of a cluster. It accepts workers and operators, places runs on
the workers, and keeps the runs' files: paths in a submitted config are paths on this host.

Connect. It prints the commands for workers and operators, and writes two join tokens to
its folder (--dir): worker.token for workers, and operator.token for commands that start and
stop runs. Keep both secret. They are valid for 24 hours; the coordinator replaces them before
they expire. engine cluster token creates more. All connections are encrypted, and only
processes with a certificate of this coordinator are served.

Limits for submitted runs. Paths must be in the working directory, or in the folders of
--root, after links are resolved, and never in --dir. ${NAME} in a config stands for the
submitter's environment variable; --env allows variables of this process. telemetry.otlp
may name the collectors of --otlp. Headers from this process's environment are only sent
to OTEL_EXPORTER_OTLP_ENDPOINT.

Metrics. With --metrics, Prometheus reads the metrics of the coordinator and of all runs at
/metrics, each run with the label run=NAME-ID. /healthz answers 200 while the coordinator
works, and /readyz while it can serve requests and write to its folder; otherwise they
answer 503 and name the part that fails. The keys telemetry.otlp and telemetry.tensorboard of a run take effect
on this host; telemetry.metrics has no effect.

Stop. Ctrl-C (SIGINT, SIGTERM, SIGHUP) stops the coordinator in order: every run finishes
its step and writes a checkpoint. A second Ctrl-C stops it at once. Started again with the
same folder, also after a crash, the coordinator resumes the runs from their last checkpoints
when workers have rejoined.

See also: engine worker, engine run --cluster, engine cluster token, engine ps.`,
		Example: `  engine cluster start
  engine cluster start --listen 0.0.0.0:7070 --advertise head:7070
  engine cluster start --listen 10.0.0.1:7070 --announce etcd://10.0.0.9:2379
  engine cluster start --listen 10.0.0.1:7070 --data-address 192.168.0.1:0 --dir /var/lib/troupe`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.coordinate(cmd.Context(), o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7070", "`HOST:PORT` to listen on")
	f.StringVar(&o.Advertise, "advertise", "", "`HOST:PORT` at which other hosts reach it, if that differs from --listen")
	f.StringVar(&o.Announce, "announce", "",
		"publish the address at this discovery `URL`, such as etcd://HOST:2379/PREFIX; workers and clients pass the same URL to --join and --cluster")
	f.StringVar(&o.DataListen, "data-address", "", "`HOST:PORT` on a second network, for tensors (default: the same as --listen)")
	f.StringVar(&o.Dir, "dir", "",
		"`folder` for certificates, tokens and the state of runs (default: $XDG_STATE_HOME/troupe, else ~/.local/state/troupe)")
	f.Float64Var(&o.silenceS, "silence-s", 3, "`seconds` without a heartbeat after which a worker counts as failed")
	f.Float64Var(&o.leaseS, "lease-s", 30,
		"`seconds` without a coordinator after which workers release their ranks; a run's cluster.lease_s overrides it")
	o.metrics.set(cmd)
	f.StringArrayVar(&o.Submissions.Roots, "root", nil,
		"`folder` that submitted configs may use for data, models, tables and outputs; repeatable (default: the working directory)")
	f.StringArrayVar(&o.Submissions.Env, "env", nil,
		"`name` of an environment variable of this process that submitted configs may use as ${NAME}; repeatable")
	f.StringArrayVar(&o.Submissions.Collectors, "otlp", nil,
		"`URL` of a collector that telemetry.otlp in submitted configs may name; repeatable ($OTEL_EXPORTER_OTLP_ENDPOINT is always allowed)")
	f.BoolVar(&o.RemoteTokens, "remote-tokens", false, "allow operators to create and revoke tokens over the network")
	return cmd
}

// check validates the flags and sets the defaults that depend on the host.
func (o *clusterFlags) check() error {
	host, _, err := net.SplitHostPort(o.Listen)
	switch {
	case err != nil:
		return usagef("--listen %q: give HOST:PORT, such as 127.0.0.1:7070", o.Listen)
	case o.silenceS < 0.1 || o.silenceS > 3600:
		return usagef("--silence-s %g: give 0.1 to 3600 seconds", o.silenceS)
	case o.leaseS <= o.silenceS || o.leaseS > 86400:
		return usagef("--lease-s %g: give more than --silence-s (%g), up to 86400 seconds", o.leaseS, o.silenceS)
	case o.Advertise == "" && (host == "" || net.ParseIP(host).IsUnspecified()):
		return usagef("--advertise is missing: --listen %s means every address of this host; give the HOST:PORT at which other hosts reach it",
			o.Listen)
	}
	if err := o.metrics.check(); err != nil {
		return err
	}
	for flag, address := range map[string]string{"advertise": o.Advertise, "data-address": o.DataListen} {
		if address == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return usagef("--%s %q: give HOST:PORT", flag, address)
		}
	}
	if o.Dir, err = clusterDir(o.Dir); err != nil {
		return err
	}
	if err := checkSubmissions(&o.Submissions); err != nil {
		return err
	}
	o.Silence, o.Lease = time.Duration(o.silenceS*float64(time.Second)), time.Duration(o.leaseS*float64(time.Second))
	return nil
}

// checkSubmissions validates the limits for submitted configs and adds the defaults.
func checkSubmissions(s *cluster.Submissions) error {
	if len(s.Roots) == 0 {
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		s.Roots = []string{here}
	}
	for i, root := range s.Roots {
		info, err := os.Stat(root)
		if err != nil {
			return usagef("--root %s: %v", root, err)
		}
		if !info.IsDir() {
			return usagef("--root %s: not a folder", root)
		}
		if s.Roots[i], err = filepath.Abs(root); err != nil {
			return err
		}
	}
	for _, name := range s.Env {
		if names := config.Variables("${" + name); len(names) != 1 || names[0] != name {
			return usagef("--env %q: give the name of an environment variable, such as DATA", name)
		}
	}
	s.Collectors = append([]string{}, s.Collectors...)
	if at := os.Getenv(otlpEndpoint); at != "" {
		s.Collectors = append(s.Collectors, at)
	}
	return nil
}

// coordinate runs a coordinator until a signal stops it.
func (a *app) coordinate(ctx context.Context, o clusterFlags) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	// It keeps running when nobody reads its output: engine logs shows the same.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	o.Logger = a.logger(slog.LevelInfo)
	export, err := a.openExports("coordinator", o.metrics.address, o.metrics.insecure)
	if err != nil {
		return busy(err, "--metrics")
	}
	export.submitted = true
	export.sayNotes()
	defer export.close() // after the runs have ended
	o.Began = func(id string, cfg *config.Config, r *troupe.Run) {
		if cfg.Telemetry.Metrics != "" {
			o.Logger.Warn("a run's telemetry.metrics has no effect on a coordinator; start it with --metrics to serve the metrics of all runs",
				"run", id, "metrics",
				cfg.Telemetry.Metrics)
		}
		export.watch(cfg.Run.Name+"-"+id, cfg, r)
	}
	c, err := cluster.NewCoordinator(o.Config)
	if err != nil {
		return busyNode(err, o.DataListen)
	}
	if err := writeTokens(c, o.Dir); err != nil {
		c.Close()
		return err
	}
	export.process(prom.NewProcess(figures.CoordinatorFigures, c.State), c.Checks())
	a.printf("the coordinator listens on %s and keeps its files in %s\n\n", c.Address(), o.Dir)
	join := c.Address()
	if o.Announce != "" {
		join = shellWord(o.Announce)
	}
	token := shellWord(filepath.Join(o.Dir, operatorTokenFile))
	a.printf("on each worker:  engine worker --join %s --token-file %s\n", join, shellWord(filepath.Join(o.Dir, workerTokenFile)))
	a.printf("to train:        engine run config.toml --cluster %s --token-file %s\n", join, token)
	a.printf("to watch runs:   engine ps --cluster %s --token-file %s (also status, logs, stop, pause)\n", join, token)
	if export.server != nil {
		a.printf("for Prometheus:  %s\n", export.server.URL())
	}
	a.printf("\n")
	a.printf("Other hosts need a copy of %s (workers) or %s (operators). Keep both files secret.\n", workerTokenFile, operatorTokenFile)
	renew := time.NewTicker(tokenTTL / 24)
	defer renew.Stop()
	for {
		select {
		case <-renew.C:
			if err := writeTokens(c, o.Dir); err != nil {
				o.Logger.Error("new tokens can't be written; the current ones expire", "err", err)
			}
			continue
		case <-signals:
		}
		break
	}
	say(a.err, "finishing the current steps and writing checkpoints; press Ctrl-C again to stop at once")
	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ending
		for began := time.Now(); ; {
			select {
			case <-signals:
				if time.Since(began) >= sameSignal {
					cancel()
					return
				}
			case <-ending.Done():
				return
			}
		}
	}()
	c.Shutdown(ending)
	return nil
}

// writeTokens creates the coordinator's own tokens and writes them to its folder. It keeps a token there that is valid
// for long enough, so that copies of it stay valid when the coordinator restarts.
func writeTokens(c *cluster.Coordinator, dir string) error {
	for _, of := range []struct {
		role cluster.Role
		file string
	}{{cluster.RoleWorker, workerTokenFile}, {cluster.RoleOperator, operatorTokenFile}} {
		path := filepath.Join(dir, of.file)
		if kept, err := cluster.ReadTokenFile(path); err == nil && c.Accepts(kept, of.role, tokenTTL/2) {
			continue
		}
		t, err := c.NewToken(of.role, tokenTTL)
		if err == nil {
			err = cluster.WriteTokenFile(path, t)
		}
		if err != nil {
			return fmt.Errorf("write the %s token: %w", of.role, err)
		}
	}
	return nil
}

// shellWord quotes a path for a shell where that is necessary.
func shellWord(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@=,\\", r)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
