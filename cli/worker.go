package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/internal/host/folder"
	figures "github.com/troupe-ml/troupe/telemetry/process"
	"github.com/troupe-ml/troupe/telemetry/prom"
)

// workerFlags are the flags of `engine worker`.
type workerFlags struct {
	cluster.WorkerConfig
	tokenFile string
	grace     time.Duration
	local     bool
	metrics   metricsFlags
}

func (a *app) newWorker() *cobra.Command {
	var o workerFlags
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Join a cluster and compute stages of its runs",
		Long: `Join the cluster of a coordinator (engine cluster start) and compute the stages that the
coordinator assigns to this process. Start one worker per machine, with the same build as
the coordinator.

Token. The coordinator prints the path of worker.token when it starts; copy that file here
and keep it secret: only you may have permission to read it. With the token the worker
verifies the coordinator and gets its own certificate, which encrypts all connections.
With --cert-file the worker stores the certificate, and rejoins without a token. It writes
nothing else to disk.

Address. --join takes the coordinator's HOST:PORT, or a discovery URL, which is looked up
again for every connection, so that the coordinator may move:

  dns://NAME:PORT                    all addresses of a DNS name, such as a headless
                                     service in Kubernetes
  dns+srv://_troupe._tcp.NAME        the SRV records of a name
  etcd://HOST:PORT,HOST:PORT/PREFIX  the address that engine cluster start --announce
                                     published; for TLS add ?ca=FILE&cert=FILE&key=FILE

The discovered address must present the coordinator's certificate.

Metrics. With --metrics, Prometheus reads the worker's metrics at /metrics. /healthz answers
200 while the worker's actors do, and /readyz while it is a member of the cluster; otherwise
they answer 503 and say why.

Stop. Ctrl-C (SIGINT, SIGTERM) leaves the cluster. If the worker has ranks of a run, a free
worker gets them, or the run writes a checkpoint at the end of its step and continues from
it on the workers that remain: no finished step is lost. The worker waits for that for up to
--grace. After that time, or at a second Ctrl-C more than a second later, it leaves at once.
Without replicas or shadows the run then repeats the steps after its last checkpoint.

See also: engine cluster start, engine cluster token, engine status.`,
		Example: `  engine worker --join 10.0.0.1:7070 --token-file worker.token
  engine worker --join dns://head:7070 --token-file worker.token
  engine worker --join head:7070 --token-file worker.token --cert-file worker.pem --name rack1-node3`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.Join == "" {
				return usagef("--join is missing: give the coordinator's HOST:PORT, which engine cluster start prints")
			}
			if err := o.metrics.check(); err != nil {
				return err
			}
			return a.computes(cmd.Context(), o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Join, "join", "", "`address` of the coordinator: HOST:PORT, dns://… or etcd://… (required)")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the worker token; - is standard input")
	f.StringVar(&o.CertFile, "cert-file", "", "`file` to keep the worker's certificate in; later starts then need no token")
	f.StringVar(&o.Name, "name", "", "`name` of the worker in the cluster (default: the host name)")
	f.StringVar(&o.Listen, "listen", "", "`HOST:PORT` to listen on (default: a free port of the address that connects to the coordinator)")
	f.StringVar(&o.Advertise, "advertise", "", "`HOST:PORT` at which other hosts reach it, if that differs from --listen")
	f.StringVar(&o.DataListen, "data-address", "", "`HOST:PORT` on a second network, for tensors (default: the same as --listen)")
	f.IntVar(&o.Threads, "threads", 0, "`number` of CPU threads to use (default: all cores)")
	o.metrics.set(cmd)
	f.DurationVar(&o.grace, "grace", 25*time.Second, "`time` to wait for a run's checkpoint before leaving, such as 25s; 0: leave at once")
	f.BoolVar(&o.local, "local", false, "exit when standard input closes")
	must(f.MarkHidden("local"))
	return cmd
}

// computes runs a worker until a signal stops it.
func (a *app) computes(ctx context.Context, o workerFlags) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in := bufio.NewReader(os.Stdin)
	if err := o.readToken(in); err != nil {
		return err
	}
	if role := o.Token.Role; role != "" && role != cluster.RoleWorker {
		return usagef("--token-file %s: the token is for %s, but a worker needs worker.token from the coordinator's folder (or create one there with engine cluster token --role worker)", o.tokenFile, map[cluster.Role]string{cluster.RoleOperator: "an operator", cluster.RoleViewer: "a viewer"}[role])
	}
	if o.local {
		// The parent process handles the terminal's signals.
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		go func() { // ends with the standard input
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
	} else {
		var end func()
		o.AtOnce, end = a.leavesOn(stop)
		defer end()
	}
	if o.grace < 0 {
		return usagef("--grace %v: give 0 or more", o.grace)
	}
	if o.Grace = o.grace; o.Grace == 0 {
		o.Grace = -1 // at once
	}
	o.Logger = a.logger(slog.LevelInfo)
	if o.local {
		o.Logger = a.logger(slog.LevelError)
	}
	if o.Threads > 0 {
		runtime.GOMAXPROCS(o.Threads + 1) // one more for messages
	}
	export, err := a.openExports("worker", o.metrics.address, o.metrics.insecure)
	if err != nil {
		return busy(err, "--metrics")
	}
	export.sayNotes()
	defer export.close()
	if export.server != nil {
		o.Monitor = new(cluster.Monitor)
		export.process(prom.NewProcess(figures.WorkerFigures, o.Monitor.State), o.Monitor.Checks())
		say(a.err, "metrics are at %s", export.server.URL())
	}
	return busyNode(cluster.Work(ctx, o.WorkerConfig), o.DataListen)
}

// readToken reads the token. It is optional with a certificate.
func (o *workerFlags) readToken(in *bufio.Reader) (err error) {
	switch {
	case o.tokenFile == "-":
		var line string
		if line, err = in.ReadString('\n'); err != nil && err != io.EOF { //nolint:errorlint // as ReadString gives it
			return fmt.Errorf("read the token from standard input: %w", err)
		}
		o.Token, err = cluster.ParseToken(line)
	case o.tokenFile != "":
		o.Token, err = cluster.ReadTokenFile(o.tokenFile)
		err = folder.Missing(err, "--token-file", "file", o.tokenFile)
	case o.CertFile == "":
		return usagef("--token-file is missing: give a copy of worker.token, which engine cluster start wrote to its folder, or a certificate with --cert-file")
	}
	return err
}

// logger returns a logger to the error stream. With ENGINE_DEBUG set it logs everything.
func (a *app) logger(level slog.Level) *slog.Logger {
	if os.Getenv("ENGINE_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}

// localWorker returns the command of a worker process on this machine. It runs this program.
func (a *app) localWorker(ctx context.Context, name, join string, threads int) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, path, "worker", "--local", "--join", join, "--token-file", "-", "--name", name, "--threads",
		strconv.Itoa(threads))
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = a.err
	return cmd
}
