package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// tokenizerConfigFile names the roles of a tokenizer's special tokens.
const tokenizerConfigFile = "tokenizer_config.json"

// tokenizerFiles finds the files of patterns: of a dataset, those to train on; of another folder, all.
func tokenizerFiles(patterns []string) ([]string, error) {
	var all []string
	for _, p := range patterns {
		d, err := data.FindDataset(p, "")
		if err != nil {
			return nil, err
		}
		files := []string{p}
		if d != nil {
			if files, err = d.Split(data.SplitTrain); err != nil {
				return nil, err
			}
		}
		all = append(all, files...)
	}
	return data.Files(all)
}

// trainTokenizer trains a tokenizer on files and writes it to a folder.
func (a *app) trainTokenizer(o tokenizeFlags, patterns []string) error {
	names, err := tokenizerFiles(patterns)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	file := filepath.Join(o.to, rundir.TokensFile)
	if _, err := os.Stat(file); err == nil { // checked before minutes of work
		return &troupe.SetupError{Err: fmt.Errorf("%s exists already; choose another folder", file)}
	}
	trainer := tokenizer.NewTrainer()
	for _, name := range names {
		text, err := readText(name, o.invalidUTF8)
		if err != nil {
			return &troupe.SetupError{Err: err}
		}
		trainer.Add(text)
	}
	text, size, err := trainer.Train(o.vocab, o.tokens)
	if err != nil {
		return &troupe.SetupError{Err: err}
	}
	if err := os.MkdirAll(o.to, 0o777); err != nil {
		return err
	}
	config := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	if len(o.tokens) > 0 {
		config["eos_token"] = o.tokens[0]
	}
	about, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	if err := errors.Join(writeNew(file, text), writeNew(filepath.Join(o.to, tokenizerConfigFile), append(about, '\n'))); err != nil {
		return err
	}
	fewer := ""
	if size < o.vocab {
		fewer = fmt.Sprintf(" (fewer than %d: the text has no more pairs to merge)", o.vocab)
	}
	a.printf("wrote %s: %s tokens from %s bytes in %s%s\n", words.OneLine(file), words.Count(int64(size)), words.Count(trainer.Bytes()),
		words.Plural(len(names), "file"), fewer)
	name := o.to
	if name == "bytes" || name == "chars" { // else the tokenizer of that name
		name = "./" + name
	}
	a.printf("to use it: tokenizer = %q in [data] of the config, or engine run --set data.tokenizer=%s\n", words.OneLine(name),
		shellWord(name))
	return nil
}
