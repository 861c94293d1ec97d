package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/bench"
)

// benchModel says which model to measure: one by name, or that of a config.
type benchModel struct {
	name, file string
	sequences  int
	sets       []string
}

func (m *benchModel) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.name, "model", "gpt2-124m", "`name` of the model: gpt, gpt2-124m, llama or qwen3")
	f.StringVar(&m.file, "config", "", "measure the model of this config `file` instead")
	f.IntVar(&m.sequences, "sequences", 0, "`number` of sequences per step (default: the model's)")
	setFlag(cmd, &m.sets)
	must(cmd.MarkFlagFilename("config", "toml"))
	completeWords(cmd, "model", bench.Models()...)
	completeWords(cmd, "sequences")
	cmd.MarkFlagsMutuallyExclusive("model", "config")
}

// checkModel rejects values that would silently mean the default.
func (m *benchModel) checkModel() error {
	if m.sequences < 0 {
		return usagef("--sequences %d: give 1 or more", m.sequences)
	}
	return nil
}

// load resolves the config. sets override everything else.
func (m *benchModel) load(sets []string) (*config.Config, error) {
	all := slices.Concat(m.flagSets(), m.sets, sets)
	if m.file != "" {
		return loadConfig(m.file, all)
	}
	return bench.ModelConfig(m.name, all)
}

// flagSets returns the flags as --set values.
func (m *benchModel) flagSets() []string {
	if m.sequences == 0 {
		return nil
	}
	return []string{fmt.Sprintf("batch.sequences=%d", m.sequences)}
}
