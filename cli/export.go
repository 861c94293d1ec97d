package cli

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
)

func (a *app) newExport() *cobra.Command {
	var (
		o      troupe.ExportOptions
		shard  string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "export [DIR] --to DIR",
		Short: "Export a language model for transformers, llama.cpp or Ollama",
		Long: `Export a language model as a Hugging Face directory: config.json, the weights as
model.safetensors, and the tokenizer's files. transformers and compatible programs load it.

With --format gguf, or a name that ends with .gguf, write one GGUF file for llama.cpp and
Ollama instead, with the tokenizer and the chat template in it. --dtype q8_0 stores 8 bits
for a weight. Warnings say where llama.cpp computes something else.

A run with an adapter (LoRA) is exported as a directory of PEFT, which has only the adapter.
With --merge, the adapter is added to the weights of its base, and the result is a whole model.
A GGUF file is always merged. --adapter merges an adapter from a directory of PEFT.

A model that came from such a directory keeps the keys of its config.json, its tokenizer, its
chat template and its generation_config.json. If the model ends texts with a token that
generation_config.json does not name, export adds that token. Weights larger than
--shard-size are split into several files with an index. --to must not exist yet; it
appears when everything is written.

A directory of a model for images and text, such as Gemma 3, is refused: --text-only writes
its text model, which the other commands take.

See also: engine generate, engine ckpt ls (lists checkpoints).`,
		Example: `  engine export --from runs/run --to my-model
  engine export --from runs/run/checkpoints/best --to my-model --dtype bfloat16 --shard-size 2GB
  engine export --from runs/run --to my-model.gguf --dtype q8_0
  engine export --from runs/lora --to my-adapter
  engine export --from runs/lora --merge --to my-model`,
		Args:              requires(takesModel, "to", "give a new folder for the exported model, such as --to my-model"),
		ValidArgsFunction: completeFolders,
		RunE: a.work(func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.ShardBytes, err = bytesOf(shard); err != nil {
				return err
			}
			if err := checkExport(o); err != nil {
				return err
			}
			if writesGGUF(o) && cmd.Flags().Changed("shard-size") {
				return usagef("--shard-size has no effect on a GGUF file, which is one file: leave it out")
			}
			if o.Adapter != "" && !o.Merge && !writesGGUF(o) {
				return usagef("--adapter %s: add --merge to write the model with the adapter, or leave --adapter out", o.Adapter)
			}
			e, err := troupe.Export(cmd.Context(), o)
			if err != nil {
				kind := "folder"
				if writesGGUF(o) {
					kind = "file"
				}
				return existing(err, "--to", kind, o.To)
			}
			for _, text := range e.Warnings {
				a.warn(text)
			}
			if asJSON {
				return a.json(e)
			}
			if e.Adapter {
				a.printf("wrote %s: an adapter of %s parameters from %s as a PEFT directory\n", words.OneLine(e.To), words.Count(e.Parameters),
					words.OneLine(e.From))
				return nil
			}
			a.printf("wrote %s: %s parameters from %s as %s\n", words.OneLine(e.To), words.Count(e.Parameters), words.OneLine(e.From), e.DType)
			return nil
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.From, "from", "", "`folder` of a run, a checkpoint or a Hugging Face model, or a GGUF file; or give it as the argument DIR")
	f.StringVar(&o.To, "to", "", "`folder` or GGUF file to create (required)")
	f.StringVar(&o.Format, "format", "", "`format`: huggingface or gguf (default: gguf if --to ends with .gguf, otherwise huggingface)")
	f.StringVar(&o.DType, "dtype", "float32", "data `type` of the weights: float32, bfloat16 or float16; GGUF: also q8_0")
	f.StringVar(&shard, "shard-size", "5GB", "largest `size` of a weights file, such as 500MB or 5GB")
	f.BoolVar(&o.TextOnly, "text-only", false, "of a model for images and text, write only the text model")
	f.BoolVar(&o.EMA, "ema", false, "write the moving averages of the weights, of a run with optimizer.ema")
	f.StringVar(&o.Adapter, "adapter", "", "PEFT `directory` with an adapter to merge into the model")
	f.BoolVar(&o.Merge, "merge", false, "add the adapter to the weights and write a whole model, in place of a PEFT directory")
	must(cmd.MarkFlagDirname("adapter"))
	f.BoolVar(&asJSON, "json", false, "print JSON")
	for _, name := range []string{"from", "to"} {
		must(cmd.MarkFlagRequired(name))
		must(cmd.MarkFlagDirname(name))
	}
	completeWords(cmd, "dtype", "float32", "bfloat16", "float16", "q8_0")
	completeWords(cmd, "format", "huggingface", "gguf")
	completeWords(cmd, "shard-size")
	return cmd
}

// writesGGUF reports whether an export is to be a GGUF file.
func writesGGUF(o troupe.ExportOptions) bool {
	return o.Format == "gguf" || o.Format == "" && ggufmodel.HasExtension(o.To)
}

// checkExport checks the flags of an export.
func checkExport(o troupe.ExportOptions) error {
	ext := strings.ToLower(filepath.Ext(o.To))
	gguf := writesGGUF(o)
	switch {
	case o.Format != "" && o.Format != "huggingface" && o.Format != "gguf":
		return usagef("--format %q: give huggingface or gguf", o.Format)
	case ext == ".safetensors" || ext == ".bin" || o.Format == "huggingface" && ext == ".gguf":
		return usagef("--to %s: export writes a folder with safetensors, or a GGUF file, but not a %s file; give a name for the folder", o.To,
			ext)
	case o.DType == "q8_0" && !gguf:
		return usagef("--dtype q8_0 is a type of GGUF files; add --format gguf, or give float32, bfloat16 or float16")
	case !slices.Contains([]string{"float32", "bfloat16", "float16", "q8_0"}, o.DType):
		return usagef("--dtype %q: give float32, bfloat16 or float16, and for a GGUF file also q8_0", o.DType)
	}
	return nil
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
