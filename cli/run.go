package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/cluster"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// runFlags are the flags of `engine run`.
type runFlags struct {
	sets         []string
	fresh        bool
	fromStep     int
	newData      bool
	quiet, json  bool
	view         bool
	leaves       bool // Ctrl-C only stops following the run
	sampleTokens int
	prompt       string
	local        int // worker processes on this machine; 0: none
	client       clientFlags
	detach       bool
	queue        bool // wait in the coordinator's queue
	workers      int  // number of workers to wait for
	page         uiFlags
	serve        string // address at which the run answers requests; "": none
	metrics      metricsFlags
}

func (a *app) newRun() *cobra.Command {
	var o runFlags
	cmd := &cobra.Command{
		Use:   "run [CONFIG]",
		Short: "Train a model, or resume training",
		Long: `Train the model that the config file CONFIG describes. CONFIG is config.toml by default.
engine init writes such a file.

CONFIG may also be the folder of a run, such as runs/first: the run resumes with the config
in it.

Resume. If the run's output folder (run.out, default runs/NAME) holds a checkpoint,
training resumes from it. You may change run.steps, the learning rate, the logging keys, the
paths of the data, [pipeline] except wire_dtype, [parallel], [device] except its types,
[cluster] and [telemetry]; docs/config.md lists all. The start says what changed, and how
the learning rate moves. Any other change is rejected with the key's name;
choose another run.name to start a new run. A damaged checkpoint is
renamed to ….damaged, and the run resumes from the one before it. An unreadable checkpoint
stops the run before training starts; use --from-step to resume from an older one.

Output. On a terminal a progress bar shows the run, with validations and checkpoints above
it; elsewhere a line is printed every run.log_every steps. The bubble is the share of time
in which the stages have no work: first as measured, then (ideal) as it would be if all
stages took equally long. Warnings and errors go to standard error. The output folder
gets config.toml, metrics.jsonl (one line per step) and checkpoints/.

Watch. --view draws the stages in the terminal. --ui serves a page that shows the run and
controls it, and shows the other runs beside its folder; the link is printed to standard
error, and the page ends with the run. engine ui shows a run's folder at any time. --serve
answers requests with the run's weights while it trains, as engine serve does. The keys of [telemetry], and --metrics, also
send metrics to Prometheus, an OpenTelemetry collector or TensorBoard; none of them delays
training.

Stop. Ctrl-C (SIGINT, SIGTERM) finishes the step, writes a checkpoint and exits with
status 75; a second Ctrl-C stops at once. A closed terminal (SIGHUP) or a closed output
(engine run … | head) acts like the first Ctrl-C. SIGQUIT prints what every actor does and
waits for. See engine help exit-codes.

Cluster. With --cluster, the coordinator (engine cluster start) trains on its workers, and
this command follows the run. Paths in the config are then the coordinator's (see engine
cluster start). Ctrl-C stops the run as above. If the terminal or the output is closed, the
run continues, and engine follow shows it again. engine run ignores $ENGINE_CLUSTER.

Queue. If no worker is free, the coordinator refuses the run (exit status 75). With --queue
the run waits in the coordinator's queue, first come first served, also while the
coordinator restarts. This command prints its position, as engine ps does. Ctrl-C or
engine stop removes the run from the queue. If the terminal is closed, the run stays there.

See also: engine config check, engine plan, engine ckpt ls, engine generate, engine ui.`,
		Example: `  engine run
  engine run config.toml --set run.steps=2000 --set 'data.train=${HOME}/books/*.txt'
  engine run config.toml --fresh --set run.name=second --sample 200
  engine run config.toml --view
  engine run config.toml --json > log.jsonl
  engine run config.toml --metrics 127.0.0.1:9464 --set telemetry.tensorboard=true
  engine run config.toml --local-cluster 2
  engine run config.toml --cluster head:7070 --detach
  engine run config.toml --cluster head:7070 --queue`,
		Args:              takesConfig,
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			switch {
			case o.quiet && o.json:
				return usagef("--quiet and --json can't be combined; use only one")
			case o.view && (o.quiet || o.json):
				return usagef("--view can't be combined with --quiet or --json: use only one of them")
			case o.fresh && (cmd.Flags().Changed("from-step") || o.newData):
				return usagef("--fresh starts from scratch, but --from-step and --accept-new-data resume a run; use only one kind")
			case cmd.Flags().Changed("from-step") && o.fromStep < 1:
				return usagef("--from-step %d: give the step of a checkpoint, 1 or more; engine ckpt ls lists them", o.fromStep)
			case cmd.Flags().Changed("local-cluster") && (o.local < 1 || o.local > maxLocal):
				return usagef("--local-cluster %d: give 1 to %d worker processes", o.local, maxLocal)
			case o.sampleTokens < 0:
				return usagef("--sample %d: give 1 or more tokens, or 0 for no sample", o.sampleTokens)
			case o.sampleTokens == 0:
				if err := idle(cmd, "without --sample", "prompt"); err != nil {
					return err
				}
			}
			if err := o.checkCluster(cmd); err != nil {
				return err
			}
			switch {
			case cmd.Flags().Changed("ui") && o.page.address == "":
				return usagef("--ui is empty: give HOST:PORT, or --ui alone for a port on loopback")
			case o.page.address == "":
				if err := idle(cmd, "without --ui", "tls-cert", "tls-key"); err != nil {
					return err
				}
			case o.detach:
				return usagef("--ui can't be combined with --detach: the page ends with the command, and --detach ends it at once; use only one")
			}
			if o.serve != "" && o.client.cluster != "" {
				return usagef("--serve can't be combined with --cluster: the weights are with the workers; use engine serve with a checkpoint")
			}
			o.sets = append(o.sets, o.metrics.sets(cmd)...)
			if len(args) == 0 && !o.quiet {
				say(a.err, "using %s", defaultConfig)
			}
			path, out := runConfig(configArg(args))
			if o.client.cluster != "" {
				return a.trainOn(cmd.Context(), path, o)
			}
			if at := os.Getenv(envCluster); at != "" && !o.quiet {
				say(a.err, "training on this machine: engine run ignores $%s; to train on the cluster, add --cluster %s", envCluster, shellWord(at))
			}
			o.sets = append(out, o.sets...)
			return a.train(cmd.Context(), path, o)
		}),
	}
	f := cmd.Flags()
	setFlag(cmd, &o.sets)
	f.BoolVar(&o.fresh, "fresh", false, "start a new run; fail if the output folder is not empty")
	f.IntVar(&o.fromStep, "from-step", 0, "resume from the checkpoint of this `step`; newer ones are renamed to ….superseded, not deleted")
	f.BoolVar(&o.newData, "accept-new-data", false, "resume even if the content of the data files has changed")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only warnings, errors and the last line")
	f.BoolVar(&o.json, "json", false, `print one JSON object per line, each with the key "event"`)
	f.BoolVar(&o.view, "view", false, "draw the stages, their actions and the loss curve at the bottom of the terminal")
	f.IntVar(&o.sampleTokens, "sample", 0, "generate a sample of this number of `tokens` after training (default: none)")
	f.IntVar(&o.local, "local-cluster", 0, "train in `N` worker processes on this machine, which the run starts and stops")
	f.StringVar(&o.client.cluster, "cluster", "",
		"train on the cluster whose coordinator is at this `address`: HOST:PORT, or a discovery URL (see engine worker --help)")
	f.IntVar(&o.workers, "workers", 0, "with --cluster: wait until `N` workers have joined (default: start with the workers that have joined)")
	f.BoolVar(&o.detach, "detach", false,
		"with --cluster: print the run's id when the run has started, then exit; engine follow shows the run")
	f.BoolVar(&o.queue, "queue", false, "with --cluster: if no worker is free, wait in the coordinator's queue")
	o.client.setCredentials(cmd)
	f.StringVar(&o.page.address, "ui", "",
		"serve a page that shows and controls the run, and print its link; --ui alone uses a port on loopback that stays the same "+
			"for the run's folder, --ui=`HOST:PORT` another address")
	f.Lookup("ui").NoOptDefVal = ownUI
	o.page.setTLS(cmd)
	f.StringVar(&o.serve, "serve", "", "answer requests as engine serve does, with the weights of the run while it trains, at `HOST:PORT` on loopback")
	o.metrics.set(cmd)
	f.StringVar(&o.prompt, "prompt", "", "with --sample: the `text` that the sample continues (default: a line break)")
	return cmd
}

func (a *app) train(ctx context.Context, path string, o runFlags) error {
	cfg, err := loadConfig(path, o.sets)
	if err != nil {
		return err
	}
	return a.trainConfig(ctx, cfg, o)
}

// trainConfig trains a model on this machine.
func (a *app) trainConfig(ctx context.Context, cfg *config.Config, o runFlags) error {
	export, err := a.openExports("run", cfg.Telemetry.Metrics, cfg.Telemetry.MetricsInsecure)
	if err != nil {
		return busy(err, "--metrics or telemetry.metrics")
	}
	if export.server != nil && !o.quiet {
		say(a.err, "metrics are at %s", export.server.URL())
	}
	signals := make(chan os.Signal, 8)
	// Until the program ends: its exit status counts even if nobody reads the output.
	signal.Notify(signals, runSignals()...)
	a.mindPipes(signals)
	o.page.folder = cfg.Run.Out
	shown, err := a.withPage(o.page)
	if err != nil {
		export.close()
		return err
	}
	defer shown.end(0)
	server, err := a.listenLive(o.serve)
	if err != nil {
		export.close()
		return err
	}
	defer server.end()
	options := troupe.Options{Fresh: o.fresh, FromStep: o.fromStep, AcceptNewData: o.newData, Control: true, Preparing: a.tell}
	r, err := start(a, notBegun, func() (*troupe.Run, error) {
		if o.local == 0 {
			return troupe.Start(ctx, cfg, options)
		}
		return a.startLocal(ctx, cfg, o.local, options)
	}, signals)
	if err != nil {
		export.close()
		return err
	}
	export.watch(cfg.Run.Name, cfg, r)
	export.run(r)
	shown.attach(r.Info().Name, r)
	if err := server.start(r.Info().Name, r); err != nil {
		a.warn(err.Error())
	}
	show := a.newReporter(r, cfg.Run.LogEvery, o)
	res, err := follow(export.noting(r), show, signals)
	shown.end(pagePatience)
	server.end()
	if a.ending != nil {
		a.ending()
	}
	if !errors.Is(err, errKilled) {
		export.close()
	}
	if err != nil {
		if res.Dir != "" {
			err = errors.Join(err, fmt.Errorf("the last checkpoint is %s", res.Dir))
		}
		return err
	}
	show.end(res)
	if res.Stopped {
		return errStopped
	}
	// From here on a signal ends this program as it ends any other.
	signal.Stop(signals)
	if o.sampleTokens > 0 {
		err := show.sample(ctx, troupe.GenerateOptions{
			ModelOptions: troupe.ModelOptions{From: cfg.Run.Out, Threads: cfg.Device.Threads, Kernels: cfg.Device.Kernels},
			TextOptions:  troupe.TextOptions{Prompt: o.prompt, Tokens: o.sampleTokens, Temperature: defaultTemperature, Seed: cfg.Run.Seed}})
		if err != nil {
			return fmt.Errorf("training is done, but generating the sample failed: %v",
				err) //nolint:errorlint // not wrapped, since a failed sample after the training is no error of the setup
		}
	}
	return nil
}

// maxLocal is the most worker processes on one machine.
const maxLocal = 256

// startLocal starts a run in worker processes on this machine. They exit when the program does, at the
// latest.
func (a *app) startLocal(ctx context.Context, cfg *config.Config, workers int, o troupe.Options) (*troupe.Run, error) {
	threads := cfg.Device.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	l, err := cluster.NewLocal(ctx, cluster.LocalConfig{Workers: workers, Threads: threads, Silence: seconds(cfg.Cluster.SilenceS),
		Lease:   seconds(cfg.Cluster.LeaseS),
		Command: a.localWorker, Logger: a.logger(slog.LevelError)})
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", words.Plural(workers, "worker process"), err)
	}
	o.Hosts = l.Hosts()
	r, err := troupe.Start(ctx, cfg, o)
	if err != nil {
		l.Close()
		return nil, err
	}
	a.ending = func() {
		l.Close()
	}
	return r, nil
}

// notBegun is the message for a run that was stopped during its set-up.
const notBegun = "stopped before training began"

// start calls begin, which may take a while. A signal in the meantime ends the program: there is nothing
// to save yet.
func start[T any](a *app, stopped string, begin func() (T, error), signals <-chan os.Signal) (T, error) {
	type started struct {
		run T
		err error
	}
	done := make(chan started, 1)
	go func() { // ends with the program at the latest
		r, err := begin()
		done <- started{r, err}
	}()
	for {
		select {
		case s := <-done:
			return s.run, s.err
		case s := <-signals:
			if s == syscall.SIGQUIT {
				say(a.err, "the run is being set up")
				continue
			}
			say(a.err, "%s", stopped)
			var none T
			return none, errStopped
		}
	}
}
