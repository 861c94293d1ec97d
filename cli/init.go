package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/propose"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// initFlags are the flags of engine init.
type initFlags struct {
	data []string
	from string
	all  bool
}

func (a *app) newInit() *cobra.Command {
	var o initFlags
	cmd := &cobra.Command{
		Use:   "init [FILE] [--data FILE...]",
		Short: "Write a config file for your data",
		Long: `Write a config file to start from, with the keys that matter most and a comment for each.
FILE is config.toml by default; its name ends in .toml. An existing file is not overwritten.

--data looks at your files and sets the format, the tokenizer, the context and the number of
steps: for text, JSON lines (documents or samples), CSV, IDX (MNIST's format) and files of
token ids (.bin). Give files, folders or patterns; several may follow. Without --data, set
data.train in the file.

--from sets up the tuning of a trained model: a run, a checkpoint or a published model.

The values are a first guess: change them as you learn more.

See also: engine run, engine config check, engine help formats.`,
		Example: `  engine init --data books/*.txt
  engine init --data mytext --all
  engine init tune.toml --from models/SmolLM2-135M-Instruct --data chat.jsonl
  engine run`,
		ValidArgsFunction: completeFiles("toml"),
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			path, err := o.arguments(cmd, args)
			if err != nil {
				return err
			}
			return a.init(path, o)
		}),
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.data, "data", nil, "`file`, folder or pattern to train on; repeatable, and further files may follow")
	f.StringVar(&o.from, "from", "", "`folder` of a model to tune: a run, a checkpoint or a Hugging Face model, or a GGUF file")
	f.BoolVar(&o.all, "all", false, "write every key, the others as comments with their defaults")
	must(cmd.MarkFlagDirname("from"))
	return cmd
}

// arguments divides the arguments into the config file and files of data, which a shell puts there: --data *.txt.
func (o *initFlags) arguments(cmd *cobra.Command, args []string) (path string, err error) {
	var others []string
	for _, arg := range args {
		switch {
		case strings.HasSuffix(arg, ".toml") && path == "":
			path = arg
		case strings.HasSuffix(arg, ".toml"):
			return "", usagef("%q and %q: give one config file to write", path, arg)
		default:
			others = append(others, arg)
		}
	}
	switch {
	case len(others) == 0:
	case len(o.data) > 0:
		o.data = append(o.data, others...)
	case exists(others[0]):
		return "", usagef("%q is no config file; to train on it, write --data %s", others[0], shellWord(others[0]))
	default:
		return "", usagef("unexpected argument %q: %s; the name of a config file ends in .toml", others[0], cmd.UseLine())
	}
	if slices.Contains(o.data, "") {
		return "", usagef("--data is empty: give a file, a folder or a pattern")
	}
	return cmp.Or(path, defaultConfig), nil
}

// init writes a config file.
func (a *app) init(path string, o initFlags) error {
	name := strings.TrimSuffix(filepath.Base(path), ".toml")
	if path == defaultConfig {
		name = ""
	}
	p, err := propose.For(propose.Options{Patterns: o.data, From: o.from, Name: propose.NameOf(name), FastBF16: cpu.MultipliesBF16("auto")})
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	text := config.Outline(initHead(path, p), p.Settings)
	if o.all {
		text = config.Template(p.Settings...)
	}
	if _, err := config.Parse(path, text, nil, nil); err != nil {
		return fmt.Errorf("the proposed config has a mistake: %w", err)
	}
	if err := writeNew(path, text); err != nil {
		return err
	}
	a.printf("wrote %s\n", words.OneLine(path))
	if p.About != "" {
		a.printf("data: %s\n", words.OneLine(p.About))
	}
	for _, note := range p.Notes {
		a.printf("note: %s\n", words.OneLine(note))
	}
	command := "engine run"
	if path != defaultConfig {
		command += " " + shellWord(path)
	}
	if len(o.data) == 0 {
		a.printf("next: set data.train in it to your files, then %s\n", command)
		return nil
	}
	a.printf("next: %s\n", command)
	return nil
}

// initHead is the comment at the start of a short config.
func initHead(path string, p *propose.Proposal) []string {
	head := []string{"A run of Troupe."}
	if p.About != "" {
		head = []string{"A run of Troupe on " + p.About + "."}
	}
	return append(head, fmt.Sprintf("Check this file with \"engine config check %s\", and train with \"engine run %s\".", path, path),
		"To override a key for one run, add --set section.key=value. docs/config.md describes all",
		"keys, and \"engine init --all FILE.toml\" writes them with their defaults.")
}

// writeNew writes a file. It fails if the file exists.
func writeNew(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return folder.Missing(existing(err, "FILE", "file", path), "FILE", "folder", filepath.Dir(path))
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // a partial file is of no use
	}
	return nil
}
