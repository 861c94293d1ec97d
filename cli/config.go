package cli

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/plan"
)

// loadConfig reads a configuration. Whatever is wrong with it, down to a file
// that isn't there, is an error of the setup.
func loadConfig(path string, sets []string) (*config.Config, error) {
	cfg, err := config.Load(path, sets, os.LookupEnv)
	if err != nil {
		return nil, &troupe.SetupError{Err: err}
	}
	return cfg, nil
}

// setFlag adds --set to a command.
func setFlag(cmd *cobra.Command, sets *[]string) {
	cmd.Flags().StringArrayVar(sets, "set", nil,
		"override a key of the file: `section.key=value`, the value in TOML or a plain string; repeatable")
	must(cmd.RegisterFlagCompletionFunc("set", cobra.NoFileCompletions))
}

func (a *app) newConfig() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check or print a configuration"}
	cmd.AddCommand(a.newConfigCheck(), a.newConfigPrint())
	asGroup(cmd)
	return cmd
}

func (a *app) newConfigCheck() *cobra.Command {
	var sets []string
	var memoryGiB float64
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check whether a configuration can be run",
		Long: `Check whether a configuration can be run, as far as that can be told without
reading the data: keys and values, the layers against the layout, the schedule,
the memory, and that there are files to train on. All mistakes are reported at
once, each with its row and column.

Memory and devices are this machine's. A configuration of several ranks may be a
cluster's: that it doesn't fit here is then a warning. With --memory-gib no device and no
memory of this machine is looked at, and each rank has a device with so much memory.`,
		Example: `  engine config check config.toml
  engine config check config.toml --memory-gib 80
  engine config check config.toml --set pipeline.stages=4 --set 'data.train=["a.txt", "b.txt"]'`,
		Args:              takes("FILE"),
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			cfg, err := loadConfig(args[0], sets)
			if err != nil {
				return err
			}
			if err := a.checkConfig(cfg, memoryGiB); err != nil {
				return err
			}
			if p, err := plan.Resolve(cfg, nil); err == nil { // else it can be run elsewhere alone
				for _, text := range p.Warnings() {
					a.warn(text)
				}
				cfg = p.Config()
			}
			a.printf("%s: ok\n", args[0])
			a.summarize(cfg)
			return nil
		}),
	}
	setFlag(cmd, &sets)
	cmd.Flags().Float64Var(&memoryGiB, "memory-gib", 0,
		"memory of each rank's device, as a `number` of GiB, to judge by instead of this machine")
	return cmd
}

// checkConfig judges a configuration by this machine, or by devices of so much memory. What only this machine lacks is a
// warning where there are several ranks.
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
	a.warn(fmt.Sprintf("this machine alone can't run it: %v; --memory-gib judges by other devices", here))
	return nil
}

// severalRanks reports whether a configuration has ranks to spread over machines.
func severalRanks(cfg *config.Config) bool {
	p := cfg.Parallel
	return cfg.Pipeline.Stages > 1 || p.Context*p.Data > 1 || slices.Max(p.Tensor) > 1
}

// summarize says in a few lines what a configuration asks for.
func (a *app) summarize(c *config.Config) {
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { _, _ = fmt.Fprintf(w, "  "+format+"\n", args...) }
	m, p := c.Model, c.Pipeline
	row("model\t%s: %s of width %d, %s, context %d", m.Family, words.Plural(m.Layers, "layer"), m.Hidden, words.Plural(m.Heads, "head"),
		m.Context)
	row("batch\t%s in %s of %d", words.Plural(c.Batch.Sequences, "sequence"), words.Plural(c.Batch.Sequences/c.Batch.Microbatch, "microbatch"),
		c.Batch.Microbatch)
	row("pipeline\tschedule %s: %s × %s", words.OneLine(p.Schedule), words.Plural(p.Stages, "stage"), words.Plural(p.Chunks, "chunk"))
	row("run\t%s, output in %s", words.Plural(c.Run.Steps, "step"), words.OneLine(c.Run.Out))
	_ = w.Flush() // its writer keeps the error
}

func (a *app) newConfigPrint() *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "print FILE",
		Short: "Print a configuration with every key resolved",
		Long: `Print a configuration as TOML with every key resolved, as the run will use it and
stores it in its output folder. The output is itself a configuration.`,
		Example: `  engine config print config.toml
  engine config print config.toml --set run.steps=50 > short.toml`,
		Args:              takes("FILE"),
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(_ *cobra.Command, args []string) error {
			cfg, err := loadConfig(args[0], sets)
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
