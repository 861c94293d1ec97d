package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// loadConfig reads a config file. Every mistake in it, and a missing file, is a troupe.SetupError.
func loadConfig(path string, sets []string) (*config.Config, error) {
	if err := noFolder(path); err != nil {
		return nil, err
	}
	cfg, err := config.Load(path, sets, os.LookupEnv)
	if err != nil {
		return nil, &troupe.SetupError{Err: missingConfig(err, path)}
	}
	return cfg, nil
}

// noFolder rejects a folder in place of a config file.
func noFolder(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return &troupe.SetupError{Err: fmt.Errorf("%s is a folder; give a config file, such as %s", path, filepath.Join(path, "config.toml"))}
	}
	return nil
}

// runConfig returns the config file of a run's folder, and the key that keeps the run there if the folder was moved. Any other path is
// returned unchanged.
func runConfig(path string) (file string, sets []string) {
	if info, err := os.Stat(path); err != nil || !info.IsDir() || !isRun(path) {
		return path, nil
	}
	return filepath.Join(path, rundir.ConfigFile), []string{fmt.Sprintf("run.out=%q", filepath.Clean(path))}
}

// setFlag adds --set to a command.
func setFlag(cmd *cobra.Command, sets *[]string) {
	cmd.Flags().StringArrayVar(sets, "set", nil,
		"override a key of the config: `section.key=value`, where value is TOML or a plain string; repeatable")
	must(cmd.RegisterFlagCompletionFunc("set", cobra.NoFileCompletions))
}

func (a *app) newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check or print a config file",
		Long: `Check a config file, or print it with the value of every key. engine init writes a config
file, and engine run trains with it.`}
	cmd.AddCommand(a.newConfigCheck(), a.newConfigPrint())
	asGroup(cmd)
	return cmd
}

func (a *app) newConfigCheck() *cobra.Command {
	var sets []string
	var memoryGiB float64
	var data bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a config file without training",
		Long: `Check a config file, by default config.toml, without training: keys and values, the layout
of the layers, the schedule, the memory, and that the training files exist. It reports all
mistakes at once, each with its line and column. Use it before you submit a long run.

By default it checks against the memory and the devices of this machine. If the config has
several ranks, a lack of memory here is only a warning, since the ranks may run on other
machines. With --memory-gib it ignores this machine: each rank gets a device with N GiB.

With --data it also reads and encodes the data: every record is checked. For documents it
shows how many tokens are learned, how long the documents are, and one example.

See also: engine plan CONFIG proposes settings that fit; engine config print.`,
		Example: `  engine config check config.toml
  engine config check config.toml --memory-gib 80
  engine config check tune.toml --data
  engine config check config.toml --set pipeline.stages=4 --set 'data.train=["a.txt", "b.txt"]'`,
		Args:              takesConfig,
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			path := configArg(args)
			cfg, err := loadConfig(path, sets)
			if err != nil {
				return err
			}
			if err := a.checkConfig(cfg, memoryGiB); err != nil {
				return err
			}
			var read troupe.Info
			if data {
				var warnings []string
				if read, warnings, err = troupe.ReadData(cfg); err != nil {
					return err
				}
				for _, text := range warnings {
					a.warn(text)
				}
			}
			if p, err := plan.Resolve(cfg, nil); err == nil { // an error here means that only other machines can run it
				for _, text := range p.Warnings() {
					a.warn(text)
				}
				cfg = p.Config()
			}
			a.printf("%s: ok\n", path)
			a.summarize(cfg)
			if data {
				a.summarizeData(read)
			}
			return nil
		}),
	}
	setFlag(cmd, &sets)
	cmd.Flags().BoolVar(&data, "data", false, "also read the data, check every record, and describe it")
	cmd.Flags().Float64Var(&memoryGiB, "memory-gib", 0,
		"check against devices with `N` GiB of memory per rank, instead of this machine")
	return cmd
}

// checkConfig checks a config against this machine, or against devices with memoryGiB of memory if that is more than 0.
// With several ranks, a lack of something on this machine alone is only a warning.
func (a *app) checkConfig(cfg *config.Config, memoryGiB float64) error {
	switch {
	case !(memoryGiB >= 0 && memoryGiB <= maxMemoryGiB):
		return usagef("--memory-gib %v: give a number of GiB from 0 to %d", memoryGiB, maxMemoryGiB)
	case memoryGiB > 0:
		return troupe.CheckElsewhere(cfg, int64(memoryGiB*(1<<30)))
	}
	here := troupe.Check(cfg)
	if here == nil || !severalRanks(cfg) || troupe.CheckElsewhere(cfg, 0) != nil {
		return here
	}
	a.warn(fmt.Sprintf("this machine alone can't run this config: %v; to check against other devices, use --memory-gib", here))
	return nil
}

// severalRanks reports whether a config has more than one rank, which several machines could share.
func severalRanks(cfg *config.Config) bool {
	p := cfg.Parallel
	return cfg.Pipeline.Stages > 1 || p.Context*p.Data > 1 || slices.Max(p.Tensor) > 1
}

// summarize prints a config in a few lines.
func (a *app) summarize(c *config.Config) {
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(w, "  "+format+"\n", args...) }
	m, p := c.Model, c.Pipeline
	switch {
	case c.Language():
		row("model\t%s: %s of width %d, %s, context %d", m.Family, words.Plural(m.Layers, "layer"), m.Hidden, words.Plural(m.Heads, "head"),
			m.Context)
	case m.Family == "mlp":
		row("model\t%s: %s of width %d", m.Family, words.Plural(m.Layers, "layer"), m.Hidden)
	case len(m.Stack) > 0:
		row("model\t%s: %s", words.OneLine(m.Family), words.Plural(len(m.Stack), "layer"))
	default:
		row("model\t%s", words.OneLine(m.Family))
	}
	row("batch\t%s, as %s of %d", words.Plural(c.Batch.Sequences, "sequence"),
		words.Plural(c.Batch.Sequences/c.Batch.Microbatch, "microbatch"),
		c.Batch.Microbatch)
	row("pipeline\tschedule %s: %s × %s", words.OneLine(p.Schedule), words.Plural(p.Stages, "stage"), words.Plural(p.Chunks, "chunk"))
	row("run\t%s, output in %s", words.Plural(c.Run.Steps, "step"), words.OneLine(c.Run.Out))
	_ = w.Flush() // its writer keeps the error
}

func (a *app) newConfigPrint() *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "print [FILE]",
		Short: "Print a config with the value of every key",
		Long: `Print a config, by default config.toml, as TOML with the value of every key: from the file,
from --set, or the default. A run stores the same text in its output folder. The output is a valid config.

See also: engine config check, engine diff (compares the configs of two runs).`,
		Example: `  engine config print config.toml
  engine config print config.toml --set run.steps=50 > short.toml`,
		Args:              takesConfig,
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			path := configArg(args)
			cfg, err := loadConfig(path, sets)
			if err != nil {
				return err
			}
			a.printf("%s", cfg.TOML())
			return nil
		}),
	}
	setFlag(cmd, &sets)
	return cmd
}
