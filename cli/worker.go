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

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/cluster"
)

// workerFlags are the flags of `engine worker`.
type workerFlags struct {
	cluster.WorkerConfig
	tokenFile string
	local     bool
}

func (a *app) newWorker() *cobra.Command {
	var o workerFlags
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Compute stages for the runs of a cluster",
		Long: `Join the cluster of a coordinator (engine cluster start) and compute the stages
that it gives this process. The token, which the coordinator has printed the name
of, is a secret: it is read from a file that nobody else may read. With it the
worker checks that it talks to the right coordinator, and gets a certificate of
its own, with which everything from then on is encrypted.

The worker needs no disk but, if you like, for the certificate (--cert-file),
with which it joins again without a token.

--join takes the coordinator's HOST:PORT, or what finds it, each time anew, also
when it comes back elsewhere:

  dns://NAME:PORT                    all addresses of a name, such as that of a
                                     headless service
  dns+srv://_troupe._tcp.NAME        the SRV records of a name
  etcd://HOST:PORT,HOST:PORT/PREFIX  what engine cluster start --announce has
                                     written there; ?ca=FILE&cert=FILE&key=FILE
                                     is for TLS

What is found must prove by its certificate that it is the coordinator. Ctrl-C (SIGINT, SIGTERM) leaves the
cluster: runs go on from their last checkpoint without it.`,
		Example: `  engine worker --join 10.0.0.1:7070 --token-file worker.token
  engine worker --join dns://head:7070 --token-file worker.token
  engine worker --join head:7070 --token-file worker.token --cert-file worker.pem --name rack1-node3`,
		Args: takes(),
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			if o.Join == "" {
				return usagef("--join is missing: give the coordinator's HOST:PORT, which it prints when it starts")
			}
			return a.computes(cmd.Context(), o)
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.Join, "join", "", "the coordinator's `address`: HOST:PORT, dns://… or etcd://…")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the token; -: the standard input")
	f.StringVar(&o.CertFile, "cert-file", "", "`file` that keeps the worker's certificate; with it no token is needed again")
	f.StringVar(&o.Name, "name", "", "the worker's `name` in the cluster (default: the host's)")
	f.StringVar(&o.Listen, "listen", "", "`host:port` to listen at (default: any port of the address that reaches the coordinator)")
	f.StringVar(&o.Advertise, "advertise", "", "`host:port` that others reach it by, where that is another")
	f.StringVar(&o.DataListen, "data-address", "", "`host:port` of a second network for tensors (default: the same)")
	f.IntVar(&o.Threads, "threads", 0, "`threads` of the CPU (default: all cores)")
	f.BoolVar(&o.local, "local", false, "end when the standard input does")
	must(f.MarkHidden("local"))
	return cmd
}

// computes is what a worker does.
func (a *app) computes(ctx context.Context, o workerFlags) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	in := bufio.NewReader(os.Stdin)
	if err := o.readToken(in); err != nil {
		return err
	}
	if o.local {
		// The process that has started it decides about signals of the terminal.
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		go func() { // ends with the standard input
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
	} else {
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
		defer stop()
	}
	o.Logger = a.logger(slog.LevelInfo)
	if o.local {
		o.Logger = a.logger(slog.LevelError)
	}
	if o.Threads > 0 {
		runtime.GOMAXPROCS(o.Threads + 1) // one for what comes and goes
	}
	return cluster.Work(ctx, o.WorkerConfig)
}

// readToken reads the token, unless there is a certificate.
func (o *workerFlags) readToken(in *bufio.Reader) (err error) {
	switch {
	case o.tokenFile == "-":
		var line string
		if line, err = in.ReadString('\n'); err != nil && err != io.EOF { //nolint:errorlint // as ReadString gives it
			return fmt.Errorf("the token: %w", err)
		}
		o.Token, err = cluster.ParseToken(line)
	case o.tokenFile != "":
		o.Token, err = cluster.ReadTokenFile(o.tokenFile)
	case o.CertFile == "":
		return usagef("--token-file is missing: give the file with the token that engine cluster start has written, or --cert-file with a certificate")
	}
	return err
}

// logger writes to the error stream; with ENGINE_DEBUG everything.
func (a *app) logger(level slog.Level) *slog.Logger {
	if os.Getenv("ENGINE_DEBUG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}

// localWorker makes the process of a worker of this machine: this program.
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
