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
	leaves       bool // who follows leaves the run at Ctrl-C
	sampleTokens int
	prompt       string
	local        int // workers of this machine; 0: none
	client       clientFlags
	detach       bool
	workers      int // to wait for
	page         uiFlags
	metrics      metricsFlags
}

func (a *app) newRun() *cobra.Command {
	var o runFlags
	cmd := &cobra.Command{
		Use:   "run CONFIG",
		Short: "Train a model, or go on training it",
		Long: `Train the model that a configuration describes. When the run's output folder
holds a checkpoint, training goes on from it; [pipeline], [device] but its types,
the number of steps, what is logged and where the data lie may have changed
meanwhile, nothing else. A checkpoint that is proven damaged is set aside, and the one before it is
taken; one that can't be read ends the start, and --from-step takes an older one.

Progress goes to the standard output: on a terminal a bar, with validations and
checkpoints above it; elsewhere a line every run.log_every steps. The bubble is
the share of the stages' time without work: as measured, and as it would be if
all stages took equally long. Warnings and errors go to the standard error. The
output folder gets config.toml, metrics.jsonl with a line for every step, and
checkpoints/.

With --ui a page in a browser shows the run while it trains: the pipeline as it works,
curves, norms of layers and samples; and controls it. The link is printed to the standard error. It ends
with the run; engine ui shows a run's folder at any time.

Ctrl-C (SIGINT, SIGTERM) finishes the step, writes a checkpoint and exits with
75; a second one stops at once. A closed terminal (SIGHUP) or output (a pipe whose
reader has ended) does the same as the first. SIGQUIT shows what every stage does
and waits for. engine help exit-codes has the details.

Figures also go where [telemetry] says: to Prometheus (--metrics), an OpenTelemetry
collector, TensorBoard. None of these ever holds training up.

With --cluster a coordinator (engine cluster start) trains, on its workers, and the
run is followed from here. Paths in the configuration are then the coordinator's,
and so are environment variables. Ctrl-C stops the run as above; where the terminal
or the output is closed the run goes on, and engine follow shows it again.`,
		Example: `  engine run config.toml
  engine run config.toml --set run.steps=2000 --set 'data.train=${HOME}/books/*.txt'
  engine run config.toml --fresh --set run.name=second --sample 200
  engine run config.toml --json > log.jsonl
  engine run config.toml --metrics 127.0.0.1:9464 --set telemetry.tensorboard=true
  engine run config.toml --cluster head:7070 --detach`,
		Args:              takes("CONFIG"),
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			switch {
			case o.quiet && o.json:
				return usagef("--quiet and --json exclude each other")
			case o.view && (o.quiet || o.json):
				return usagef("--view excludes --quiet and --json: one draws, the others leave out or write for programs")
			case o.fresh && (cmd.Flags().Changed("from-step") || o.newData):
				return usagef("--fresh begins from scratch: --from-step and --accept-new-data are for a run that goes on")
			case cmd.Flags().Changed("from-step") && o.fromStep < 1:
				return usagef("--from-step %d: give the step of a checkpoint, 1 or more (engine ckpt ls lists them)", o.fromStep)
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
				return usagef("--ui is empty: give HOST:PORT, or --ui alone for %s", usualUI)
			case o.page.address == "":
				if err := idle(cmd, "without --ui", "tls-cert", "tls-key"); err != nil {
					return err
				}
			case o.detach:
				return usagef("--ui with --detach: the page ends with the command, which does not follow the run; leave one out")
			}
			o.sets = append(o.sets, o.metrics.sets(cmd)...)
			if o.client.cluster != "" {
				return a.trainOn(cmd.Context(), args[0], o)
			}
			return a.train(cmd.Context(), args[0], o)
		}),
	}
	f := cmd.Flags()
	setFlag(cmd, &o.sets)
	f.BoolVar(&o.fresh, "fresh", false, "start from scratch; an output folder that is not empty is refused")
	f.IntVar(&o.fromStep, "from-step", 0, "go on from the checkpoint of this `step`; newer ones are set aside, not removed")
	f.BoolVar(&o.newData, "accept-new-data", false, "go on although the content of the data files has changed")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only warnings, errors and how it ended")
	f.BoolVar(&o.json, "json", false, `print a JSON object a line, each with an "event"`)
	f.BoolVar(&o.view, "view", false, "on a terminal, draw the stages, what each does, and the curve of the loss in the last rows")
	f.IntVar(&o.sampleTokens, "sample", 0, "at the end, let the model write this number of `tokens`")
	f.IntVar(&o.local, "local-cluster", 0, "train in this number of worker `processes` of this machine, started and ended by the run")
	f.StringVar(&o.client.cluster, "cluster", "", "have the coordinator at an `address` train, HOST:PORT or as of engine worker --join")
	f.IntVar(&o.workers, "workers", 0, "with --cluster: begin when this number of `workers` has joined (default: with those that are there)")
	f.BoolVar(&o.detach, "detach", false, "with --cluster: print the run's id when it has begun, and don't follow it")
	o.client.setCredentials(cmd)
	f.StringVar(&o.page.address, "ui", "",
		"show the run in a browser while it trains: print a link to a page, served at an `address` (default "+usualUI+"); write --ui=ADDRESS")
	f.Lookup("ui").NoOptDefVal = usualUI
	o.page.setTLS(cmd)
	o.metrics.set(cmd)
	f.StringVar(&o.prompt, "prompt", "", "`text` that the sample continues (default: a line break)")
	return cmd
}

func (a *app) train(ctx context.Context, path string, o runFlags) error {
	cfg, err := loadConfig(path, o.sets)
	if err != nil {
		return err
	}
	export, err := a.openExports(cfg.Telemetry.Metrics, cfg.Telemetry.MetricsInsecure)
	if err != nil {
		return err
	}
	if export.server != nil && !o.quiet {
		say(a.err, "metrics are at %s", export.server.URL())
	}
	signals := make(chan os.Signal, 8)
	// To the end of the program: where nobody reads, its exit status still counts.
	signal.Notify(signals, runSignals()...)
	a.mindPipes(signals)
	shown, err := a.withPage(o.page)
	if err != nil {
		export.close()
		return err
	}
	defer shown.end(0)
	options := troupe.Options{Fresh: o.fresh, FromStep: o.fromStep, AcceptNewData: o.newData}
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
	shown.attach(r.Info().Name, r)
	show := a.newReporter(r, cfg.Run.LogEvery, o)
	res, err := follow(export.noting(r), show, signals)
	shown.end(pagePatience)
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
	// From here on a signal does what it does to any program.
	signal.Stop(signals)
	if o.sampleTokens > 0 {
		err := show.sample(ctx, troupe.GenerateOptions{
			ModelOptions: troupe.ModelOptions{From: cfg.Run.Out, Threads: cfg.Device.Threads, Kernels: cfg.Device.Kernels},
			Prompt:       o.prompt, Tokens: o.sampleTokens, Temperature: defaultTemperature, Seed: cfg.Run.Seed,
		})
		if err != nil {
			return fmt.Errorf("the training is done, but not the sample: %v",
				err) //nolint:errorlint // the training is done: what kept the sample from coming is no error of the setup
		}
	}
	return nil
}

// maxLocal bounds the worker processes of one machine.
const maxLocal = 256

// startLocal begins a run in worker processes of this machine. They end with the program
// at the latest.
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
		return nil, fmt.Errorf("starting %s: %w", words.Plural(workers, "worker process"), err)
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

// notBegun is what is said of a run that was stopped so early.
const notBegun = "stopped before training began"

// start begins a run, which may take a while. A signal before it is done ends
// the program: there is nothing to save.
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
