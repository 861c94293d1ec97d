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
	"github.com/troupe-ml/troupe/telemetry/event"
)

// tokenTTL is the life of the tokens that a coordinator writes by itself; it writes new ones
// when half of that is over.
const tokenTTL = 24 * time.Hour

func (a *app) newCluster() *cobra.Command {
	cmd := &cobra.Command{Use: "cluster", Short: "Run a cluster's coordinator, make tokens, control runs"}
	cmd.AddCommand(a.newClusterStart(), a.newClusterToken(), a.newClusterTokens(), a.newClusterRevoke(), a.newClusterRelease(),
		a.newChange("pause", "Hold a run at the end of its step", event.ChangePause),
		a.newChange("resume", "Resume a paused run and cancel scheduled pauses", event.ChangeResume),
		a.newChange("checkpoint", "Have a run write a checkpoint at the end of its step", event.ChangeCheckpoint),
		a.newChange("rate", "Change the learning rate of a run", event.ChangeRate))
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
		Short: "Run the coordinator of a cluster",
		Long: `Run the coordinator of a cluster: it has the authority that lets workers and
operators join, the runs, and their files. Paths in configurations are its own:
data, weights and output folders lie on this host.

What an operator submits is limited. Its paths have to be in the working directory, or in
the folders given by --root, also where links lead, and never in --dir. ${NAME} in it
stands for the submitter's environment variables; of this process's only for those given by
--env. telemetry.otlp may name the collectors given by --otlp; the environment's headers go
to OTEL_EXPORTER_OTLP_ENDPOINT alone.

It prints the lines to type elsewhere, and writes two tokens into its folder,
which are secrets: worker.token, with which workers join, and operator.token, with
which runs are begun and stopped. They hold for 24 hours; new ones are written in
time. engine cluster token makes others. Everything is encrypted, and who has no
certificate of this authority gets nothing.

With --metrics Prometheus finds the figures of all its runs at /metrics, each under the
label run, NAME-ID. What a run's [telemetry] says of OpenTelemetry and TensorBoard is done
here too; metrics is not, since this flag says where.

Ctrl-C (SIGINT, SIGTERM, SIGHUP) ends it in order: every run finishes its step and writes
a checkpoint. Started again with the same folder, the coordinator takes the runs
up from their last checkpoints by itself, as it does after a crash, as soon as
workers have come back. A second Ctrl-C ends it at once.`,
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
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7070", "`host:port` to listen at")
	f.StringVar(&o.Advertise, "advertise", "", "`host:port` that others reach it by, where that is another")
	f.StringVar(&o.Announce, "announce", "",
		"make the `address` known there, such as etcd://HOST:2379/PREFIX, by which --join and --cluster find it")
	f.StringVar(&o.DataListen, "data-address", "", "`host:port` of a second network for tensors (default: the same)")
	f.StringVar(&o.Dir, "dir", "",
		"`folder` for authority, tokens and runs in progress (default: $XDG_STATE_HOME/troupe, else ~/.local/state/troupe)")
	f.Float64Var(&o.silenceS, "silence-s", 3, "`seconds` without a sign of life until a worker is lost")
	f.Float64Var(&o.leaseS, "lease-s", 30,
		"`seconds` without a coordinator until workers give their ranks up; cluster.lease_s of a run overrides it")
	o.metrics.set(cmd)
	f.StringArrayVar(&o.Submissions.Roots, "root", nil,
		"`folder` that submissions may use: data, models, tables and outputs; may be repeated (default: the working directory)")
	f.StringArrayVar(&o.Submissions.Env, "env", nil,
		"`name` of an environment variable of this process that ${NAME} in submissions may stand for; may be repeated")
	f.StringArrayVar(&o.Submissions.Collectors, "otlp", nil,
		"`URL` of a collector that telemetry.otlp in submissions may name; may be repeated (always: $OTEL_EXPORTER_OTLP_ENDPOINT)")
	f.BoolVar(&o.RemoteTokens, "remote-tokens", false, "let operators make and revoke tokens over the network")
	return cmd
}

// check looks at what was given.
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
		return usagef("--advertise is missing: %s is every address of this host; give the HOST:PORT that others reach it by", o.Listen)
	}
	if m := o.metrics; m.address == "" && m.insecure {
		return usagef("--metrics-insecure: it has no effect without --metrics; leave it out")
	} else if m.address != "" {
		if _, _, err := net.SplitHostPort(m.address); err != nil {
			return usagef("--metrics %q: give HOST:PORT, such as 127.0.0.1:9464", m.address)
		}
		if !m.insecure && !config.OnLoopback(m.address) {
			return usagef("--metrics %s: it is not on loopback, and metrics travel in the clear, to whoever asks; use 127.0.0.1, or give --metrics-insecure where the network is one that you trust, as Prometheus's pods are", m.address)
		}
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

// checkSubmissions completes what submissions may use.
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
			return usagef("--root %s: it is no folder", root)
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

// coordinate is what a coordinator does.
func (a *app) coordinate(ctx context.Context, o clusterFlags) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	// It goes on where nobody reads what it prints: engine logs has it too.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	o.Logger = a.logger(slog.LevelInfo)
	export, err := a.openExports(o.metrics.address, o.metrics.insecure)
	if err != nil {
		return err
	}
	export.submitted = true
	export.sayNotes()
	defer export.close() // behind the runs' end
	o.Began = func(id string, cfg *config.Config, r *troupe.Run) {
		if cfg.Telemetry.Metrics != "" {
			o.Logger.Warn("a run's telemetry.metrics has no effect here: engine cluster start --metrics serves all runs", "run", id, "metrics",
				cfg.Telemetry.Metrics)
		}
		export.watch(cfg.Run.Name+"-"+id, cfg, r)
	}
	c, err := cluster.NewCoordinator(o.Config)
	if err != nil {
		return err
	}
	if err := writeTokens(c, o.Dir); err != nil {
		c.Close()
		return err
	}
	a.printf("the coordinator listens at %s, and keeps its files in %s\n\n", c.Address(), o.Dir)
	join := c.Address()
	if o.Announce != "" {
		join = shellWord(o.Announce)
	}
	a.printf("on each worker:    engine worker --join %s --token-file %s\n", join, shellWord(filepath.Join(o.Dir, workerTokenFile)))
	a.printf("to train:          engine run config.toml --cluster %s\n", join)
	a.printf("to look after it:  engine ps, status, logs, stop\n")
	if export.server != nil {
		a.printf("for Prometheus:    %s\n", export.server.URL())
	}
	a.printf("\n")
	a.printf("Other hosts need a copy of %s (workers) or %s (operators, with --token-file); they are secrets.\n", workerTokenFile,
		operatorTokenFile)
	renew := time.NewTicker(tokenTTL / 2)
	defer renew.Stop()
	for {
		select {
		case <-renew.C:
			if err := writeTokens(c, o.Dir); err != nil {
				o.Logger.Error("no new tokens", "err", err)
			}
			continue
		case <-signals:
		}
		break
	}
	say(a.err, "finishing steps and writing checkpoints; again to end at once")
	ending, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with ending
		select {
		case <-signals:
			cancel()
		case <-ending.Done():
		}
	}()
	c.Shutdown(ending)
	return nil
}

// writeTokens writes the tokens that a coordinator gives by itself.
func writeTokens(c *cluster.Coordinator, dir string) error {
	for _, of := range []struct {
		role cluster.Role
		file string
	}{{cluster.RoleWorker, workerTokenFile}, {cluster.RoleOperator, operatorTokenFile}} {
		t, err := c.NewToken(of.role, tokenTTL)
		if err == nil {
			err = cluster.WriteTokenFile(filepath.Join(dir, of.file), t)
		}
		if err != nil {
			return fmt.Errorf("the %s's token: %w", of.role, err)
		}
	}
	return nil
}

// shellWord writes a path so that a shell takes it for one word.
func shellWord(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@\\", r)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
