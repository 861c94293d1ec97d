package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/fit"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/propose"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// tuneFlags are the flags of engine tune.
type tuneFlags struct {
	sets   []string
	dir    string
	steps  int
	dryRun bool
	quiet  bool
}

func (a *app) newTune() *cobra.Command {
	var o tuneFlags
	cmd := &cobra.Command{
		Use:   "tune MODEL DATA...",
		Short: "Tune a published model on your data, in the memory of this machine",
		Long: `Tune a model: choose a config that fits the free memory of this machine, say why, and
train. MODEL is a Hugging Face directory, a GGUF file, or the folder of a run. DATA is a
file, a folder, a dataset or a pattern, as for engine init --data.

It tries the context that the data needs, then shorter ones. For each of them it tries to
train all weights, then adapters (LoRA), then adapters beside a base in 8 and in 4 bits; of
each first large microbatches, then small ones, then recomputation. The first option that
fits is chosen. The limit of a control group (a container, a systemd unit) counts as the
machine's memory.

The config is config.toml in the run's folder. To change it, write it with --dry-run and
train with engine run. A key of --set is not chosen: --set model.context=512 sets the
context, --set adapter.rank=8 trains adapters of rank 8, --set adapter.rank=0 all weights. If
the folder has a run, nothing is changed; engine run DIR resumes it.

See also: engine init, engine run, engine plan.`,
		Example: `  engine tune models/SmolLM2-135M-Instruct chat.jsonl
  engine tune model data/ --dry-run > tune.toml
  engine tune model chat.jsonl --steps 50 --dir runs/short
  engine tune model chat.jsonl --set adapter.rank=8 --set optimizer.lr=1e-4`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usagef("%d of 2 arguments: give a model and the data to tune it on: %s", len(args), cmd.UseLine())
			}
			return nil
		},
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("steps") && o.steps < 1:
				return usagef("--steps %d: give 1 or more", o.steps)
			case cmd.Flags().Changed("dir") && o.dir == "":
				return usagef("--dir is empty: give a folder")
			}
			return a.tune(cmd.Context(), args[0], args[1:], o)
		}),
	}
	f := cmd.Flags()
	setFlag(cmd, &o.sets)
	f.StringVar(&o.dir, "dir", "", "`folder` of the run (default: runs/NAME, with the name of the data)")
	f.IntVar(&o.steps, "steps", 0, "`number` of steps (default: about 3 epochs, at most 1,000 steps)")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the config, and train nothing")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only warnings, errors and the last lines")
	return cmd
}

// tune chooses a config and trains with it.
func (a *app) tune(ctx context.Context, model string, data []string, o tuneFlags) error {
	p, err := propose.For(propose.Options{Patterns: data, From: model, Name: propose.NameOf(filepath.Base(o.dir)),
		FastBF16: cpu.MultipliesBF16("auto")})
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	if o.dir != "" {
		p.Settings = append(p.Settings, config.Setting{Key: "run.out", Value: o.dir})
	}
	if o.steps > 0 {
		p.SetSteps(o.steps)
	}
	sets, all := fit.AllWeights(o.sets)
	early, parseErr := config.Parse(defaultConfig, config.Outline(nil, p.Settings), sets, os.LookupEnv)
	if parseErr == nil && !o.dryRun { // choosing takes a while
		if err := refuseRun(early.Run.Out); err != nil {
			return err
		}
	}
	choice, err := chooseTuning(ctx, fit.Options{Proposal: p, Sets: sets, AllWeights: all, Env: os.LookupEnv, Free: device.HostFreeBytes()},
		early)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	text := config.Outline(tuneHead(p, choice), choice.Settings)
	cfg, err := config.Parse(defaultConfig, text, nil, os.LookupEnv)
	if err != nil {
		return fmt.Errorf("the chosen config has a mistake: %w", err)
	}
	if o.dryRun {
		_, _ = a.programs().Write(text) // run reports the error, if any
		return nil
	}
	if err := refuseRun(cfg.Run.Out); err != nil {
		return err
	}
	if !o.quiet {
		a.printf("data: %s\n", words.OneLine(p.About))
		for _, line := range choice.Why {
			a.printf("%s\n", words.OneLine(line))
		}
	}
	if err := a.trainConfig(ctx, cfg, runFlags{fresh: true, quiet: o.quiet}); err != nil {
		return err
	}
	for _, line := range tuned(cfg, p.Chat) {
		a.printf("%s\n", line)
	}
	return nil
}

// refuseRun returns an error if a folder has a run.
func refuseRun(dir string) error {
	if !isRun(dir) {
		return nil
	}
	return &troupe.SetupError{Err: fmt.Errorf("%w %s: it has a run already; resume it with engine run %s, or give another folder with --dir",
		troupe.ErrOutput, dir, shellWord(dir))}
}

// chooseTuning chooses how to tune in the memory of this machine, or of its GPU. c is the proposal; nil: its keys are only valid with
// adapters.
func chooseTuning(ctx context.Context, o fit.Options, c *config.Config) (*fit.Choice, error) {
	if c == nil {
		return fit.Choose(o)
	}
	if o.GPU, _ = device.ResolveAuto(ctx, c, false); o.GPU {
		whole, err := plan.Resolve(c.WithAutoGPU(true), nil)
		if err != nil {
			return nil, err
		}
		if o.Free, err = whole.FreeBytes(); err != nil {
			return nil, err
		}
	}
	return fit.Choose(o)
}

// tuneHead is the comment at the start of a chosen config.
func tuneHead(p *propose.Proposal, c *fit.Choice) []string {
	head := []string{"Tuning by engine tune, on " + p.About + "."}
	return append(append(head, c.Why...), "docs/config.md describes all keys.")
}

// tuned are the commands with which a tuned model is tried and exported.
func tuned(c *config.Config, chat bool) []string {
	from := shellWord(c.Run.Out)
	try := "engine generate --from " + from
	if chat {
		try += " --chat"
	} else {
		try += ` --prompt "Once"`
	}
	to := shellWord(strings.TrimSuffix(c.Run.Out, "/") + "-model")
	export := "engine export --from " + from + " --to " + to
	if c.LoRA() != nil {
		export = "engine export --from " + from + " --merge --to " + to
	}
	return []string{"try:    " + try, "export: " + export}
}
