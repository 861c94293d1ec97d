package cli

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
)

func (a *app) newExport() *cobra.Command {
	var (
		o      troupe.ExportOptions
		shard  string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "export [DIR] --to DIR",
		Short: "Export a language model for Hugging Face transformers",
		Long: `Export a language model as a Hugging Face directory: config.json, the weights as
model.safetensors, and the tokenizer's files. transformers and compatible programs load it.

A model that came from such a directory keeps the keys of its config.json, its tokenizer, its
chat template and its generation_config.json. If the model ends texts with a token that
generation_config.json does not name, export adds that token. Weights larger than
--shard-size are split into several files with an index. --to must not exist yet; it
appears when everything is written.

See also: engine generate, engine ckpt ls (lists checkpoints).`,
		Example: `  engine export --from runs/run --to my-model
  engine export --from runs/run/checkpoints/best --to my-model --dtype bfloat16 --shard-size 2GB`,
		Args:              requires(takesModel, "to", "give a new folder for the exported model, such as --to my-model"),
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.ShardBytes, err = bytesOf(shard); err != nil {
				return err
			}
			if ext := strings.ToLower(filepath.Ext(o.To)); ext == ".gguf" || ext == ".safetensors" || ext == ".bin" {
				return usagef("--to %s: export writes a folder with safetensors, not a %s file; give a name for the folder. %s", o.To, ext,
					"For GGUF, convert that folder with convert_hf_to_gguf.py of llama.cpp, or with ollama create")
			}
			if o.DType != "float32" && o.DType != "bfloat16" && o.DType != "float16" {
				return usagef("--dtype %q: give float32, bfloat16 or float16", o.DType)
			}
			e, err := troupe.Export(cmd.Context(), o)
			if err != nil {
				return existing(err, "--to", "folder", o.To)
			}
			for _, text := range e.Warnings {
				a.warn(text)
			}
			if asJSON {
				return a.json(e)
			}
			a.printf("wrote %s: %s parameters from %s as %s\n", words.OneLine(e.To), words.Count(e.Parameters), words.OneLine(e.From), e.DType)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.From, "from", "", "`folder` of a run, a checkpoint or a Hugging Face model; or give it as the argument DIR")
	f.StringVar(&o.To, "to", "", "`folder` to create (required)")
	f.StringVar(&o.DType, "dtype", "float32", "data `type` of the weights: float32, bfloat16 or float16")
	f.StringVar(&shard, "shard-size", "5GB", "largest `size` of a weights file, such as 500MB or 5GB")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	for _, name := range []string{"from", "to"} {
		must(cmd.MarkFlagRequired(name))
		must(cmd.MarkFlagDirname(name))
	}
	completeWords(cmd, "dtype", "float32", "bfloat16", "float16")
	completeWords(cmd, "shard-size")
	return cmd
}

// bytesOf reads a size in bytes.
func bytesOf(text string) (int64, error) {
	number, unit := text, int64(1)
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}} {
		if n, ok := strings.CutSuffix(strings.ToUpper(text), u.name); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/unit {
		return 0, usagef("--shard-size %q: give a size such as 500MB or 5GB", text)
	}
	return n * unit, nil
}
