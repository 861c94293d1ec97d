package cli

import "github.com/spf13/cobra"

// formats is the help topic about data.
func formats() *cobra.Command {
	return &cobra.Command{
		Use:   "formats",
		Short: "Which data engine trains on, and how to name it in the config",
		Long: `Set data.train to one or more files or patterns, and data.format to one of these:

For language models:

  text       UTF-8 text (the default). data.tokenizer splits it into tokens.
  documents  JSON lines: each line is a document, an object with "text"; or with
             "prompt" and "completion" (only the completion is learned); or with
             "messages": [{"role": "user", "content": "…"}, …] (only the answers are
             learned; the model needs a chat template).
  uint16     Token ids as 16-bit little-endian numbers.
  uint32     Token ids as 32-bit little-endian numbers.

For model.family = "mlp" or "stack", and for families that a custom program registers:

  csv        A table. data.label names the column of the class, or data.targets the
             columns of numbers to predict; data.features names the inputs.
  idx        Arrays in the IDX format of MNIST, with labels in the files of data.labels.
  jsonl      JSON lines of numbers and arrays. data.label, data.targets and
             data.features name their keys.

data.tokenizer is "bytes" (the default), "chars", or the path of a tokenizer.json or of a
folder with one; write "./words" for the folder words in the working directory. Texts,
documents, csv, idx and jsonl files may be compressed with gzip or zstd. A custom program
can register more formats.

Examples:

  data.train = ["books/**/*.txt"]        text, from all folders under books
  data.train = ["chat.jsonl"]            with data.format = "documents"
  data.train = ["digits.csv"]            with data.format = "csv", data.label = "class"

See also: engine tokenize --train makes a tokenizer; engine config check reports missing files.`,
	}
}
