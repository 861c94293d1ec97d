package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// tokenizeFlags are the flags of engine tokenize.
type tokenizeFlags struct {
	from, special  string
	invalidUTF8    string
	asJSON, decode bool
	train          bool
	vocab          int
	to             string
	tokens         []string // special tokens of the tokenizer to train
}

// The values of --special: how special tokens are handled.
const (
	specialNone  = "none"
	specialNames = "names"
	specialAdd   = "add"
)

func (a *app) newTokenize() *cobra.Command {
	var o tokenizeFlags
	cmd := &cobra.Command{
		Use:   "tokenize --from DIR FILE...",
		Short: "Encode text, decode ids, or train a tokenizer",
		Long: `Encode text with a model's tokenizer, decode ids, or train a tokenizer.

Encode. Each FILE is a text file, or a Parquet file of documents; - is standard input, as in
echo Once | engine tokenize … -.
It prints one token per line, with its id,
or with --json one array of ids per FILE. The ids equal those of the Hugging Face tokenizers
library for the same tokenizer.json.

Decode. With --decode, each FILE is an array of ids such as [1,2,3]. It prints the text, or
with --json a JSON string.

Train. With --train it trains a byte-level BPE tokenizer of up to --vocab tokens on all
FILEs, which may be quoted patterns such as 'corpus/**/*.txt', or the folder of a dataset with
Parquet files. It writes tokenizer.json and tokenizer_config.json to the folder --to. In the
config, set data.tokenizer to that tokenizer.json.

Special tokens. By default (--special names) the name of a special token in a text stands
for the token, as in training (data.special_tokens = "tokens"). With none, names are plain
text. With add, it also adds the tokens that the tokenizer puts before and after a text.

See also: engine run, engine help formats.`,
		Example: `  engine tokenize --from models/SmolLM2-135M notes.txt
  engine tokenize --from tokenizer.json --json notes.txt > ids.json
  echo Once | engine tokenize --from runs/run -
  engine tokenize --train --vocab 8192 --to models/words 'corpus/**/*.txt'`,
		RunE: a.work(func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd, args); err != nil {
				return err
			}
			if o.train {
				return a.trainTokenizer(o, args)
			}
			tok, err := openTokenizer(o.from)
			if err != nil {
				return &troupe.SetupError{Err: err}
			}
			out := bufio.NewWriter(a.programs())
			if o.decode {
				err = decodeFiles(out, tok, o, args)
			} else {
				err = encodeFiles(out, tok, o, args)
			}
			return errors.Join(err, out.Flush())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "",
		"`path` of a tokenizer.json, or of a folder with one: a run, a checkpoint or a Hugging Face model; or of a GGUF file")
	f.BoolVar(&o.asJSON, "json", false, "print JSON")
	f.BoolVar(&o.decode, "decode", false, "decode ids to text")
	f.StringVar(&o.special, "special", specialNames, "`handling` of special tokens: none, names or add (see above)")
	f.StringVar(&o.invalidUTF8, "invalid-utf8", config.UTF8OrRefuse,
		"`action` for text that is not UTF-8: refuse, or bytes to use the bytes as they are")
	f.BoolVar(&o.train, "train", false, "train a tokenizer on the FILEs")
	f.IntVar(&o.vocab, "vocab", 8192, "with --train: most `tokens` in the vocabulary")
	f.StringVar(&o.to, "to", "", "with --train: `folder` for the trained tokenizer (required)")
	f.StringArrayVar(&o.tokens, "special-token", []string{"<|endoftext|>"},
		"with --train: `name` of a special token; repeatable; the first one ends texts")
	completeWords(cmd, "special", specialNone, specialNames, specialAdd)
	completeWords(cmd, "invalid-utf8", config.UTF8OrRefuse, config.UTF8OrBytes)
	completeWords(cmd, "vocab")
	completeWords(cmd, "special-token")
	must(cmd.MarkFlagDirname("to"))
	return cmd
}

func (o tokenizeFlags) check(cmd *cobra.Command, args []string) error {
	if o.train {
		if err := idle(cmd, "with --train", "from", "json", "decode", "special"); err != nil {
			return err
		}
		if o.to == "" {
			return usagef("--to is missing: give the folder to write the tokenizer to")
		}
	} else {
		if err := idle(cmd, "without --train", "vocab", "to", "special-token"); err != nil {
			return err
		}
		if o.from == "" {
			return usagef("--from is missing: give a tokenizer.json or a folder with one, or train one with --train")
		}
	}
	if o.invalidUTF8 != config.UTF8OrRefuse && o.invalidUTF8 != config.UTF8OrBytes {
		return usagef("--invalid-utf8 %q%s: give refuse or bytes", o.invalidUTF8,
			didYouMean(o.invalidUTF8, []string{config.UTF8OrRefuse, config.UTF8OrBytes}, ""))
	}
	switch o.special {
	case specialNone, specialNames, specialAdd:
	default:
		return usagef("--special %q%s: give none, names or add", o.special, didYouMean(o.special, []string{specialNone, specialNames, specialAdd},
			""))
	}
	if len(args) == 0 {
		return usagef("FILE is missing: %s; - reads the standard input", cmd.UseLine())
	}
	stdin := 0
	for _, name := range args {
		if name == "-" {
			stdin++
		}
	}
	if stdin > 1 || stdin > 0 && o.train {
		return usagef("the argument -: standard input can be read only once, and not with --train")
	}
	return nil
}

// openTokenizer reads the tokenizer.json at a path, in a folder, or in a run's last checkpoint.
func openTokenizer(from string) (tokenizer.Tokenizer, error) {
	info, err := os.Stat(from)
	if err != nil {
		return nil, folder.Missing(fmt.Errorf("--from: %w", err), "--from", "file or folder", from)
	}
	if ggufmodel.IsFile(from) {
		return rundir.OpenTokenizer(from)
	}
	file := from
	if info.IsDir() {
		file = filepath.Join(from, rundir.TokensFile)
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return tokenizerOfRun(from)
		}
	}
	text, err := readAtMost(file, tokenizer.MaxFileBytes)
	if err != nil {
		return nil, fmt.Errorf("--from: %w", err)
	}
	tok, err := tokenizer.Unmarshal(text)
	if err != nil {
		if filepath.Base(file) == rundir.TokensFile { // err begins with this name
			from = filepath.Dir(file)
		}
		return nil, fmt.Errorf("%s: %w", words.OneLine(from), err)
	}
	return tok, nil
}

func tokenizerOfRun(dir string) (tok tokenizer.Tokenizer, err error) {
	c, err := checkpoint.OpenAt(dir)
	if err != nil {
		return nil, fmt.Errorf("--from: the folder has no %s, and no checkpoint: %w", rundir.TokensFile, err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	tok, err = rundir.ReadTokenizer(c)
	if err == nil && tok == nil {
		err = fmt.Errorf("the checkpoint has no %s", rundir.TokensFile)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Dir(), err)
	}
	return tok, nil
}

// readAtMost reads a file; - is the standard input.
func readAtMost(name string, most int64) ([]byte, error) {
	in := os.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // nothing was written
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s: larger than the limit of %d bytes", name, most)
	}
	return text, err
}

// readText reads a text as training does; - is standard input. A text may be empty.
func readText(name, invalidUTF8 string) ([]byte, error) {
	read := data.ReadText
	if invalidUTF8 == config.UTF8OrBytes {
		read = data.ReadBytes
	}
	if name != "-" && !exists(name) {
		return nil,
			fmt.Errorf("the file %q does not exist; FILE is a text file, and - is standard input: echo Once | engine tokenize --from DIR -", name)
	}
	if name == "-" {
		content, err := readAtMost(name, maxTokenizeBytes)
		if err != nil || invalidUTF8 == config.UTF8OrBytes {
			return bytes.TrimPrefix(content, []byte("\ufeff")), err
		}
		return data.TextOf(nameOf(name), content)
	}
	if table, err := data.IsTable(name); err != nil || table {
		return tableText(name, err)
	}
	text, err := read([]string{name})
	if errors.Is(err, data.ErrEmpty) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if n := len(text.Bytes()); n > maxTokenizeBytes {
		return nil, fmt.Errorf("%s: %d bytes, the limit is %d", name, n, maxTokenizeBytes)
	}
	return text.Bytes(), nil
}

// tableText returns the texts of the documents in a Parquet file.
func tableText(name string, err error) (text []byte, _ error) {
	if err != nil {
		return nil, err
	}
	rows, err := data.OpenRows([]string{name}, config.DocumentKeys, 0, 0)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for len(text) <= maxTokenizeBytes {
		row, err := rows.Next()
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return text, nil
		}
		if err == nil {
			if text, err = corpus.AppendRowText(text, row.Line); err != nil {
				err = fmt.Errorf("%s, row %d: %w", words.OneLine(name), row.Row, err)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: more than %d bytes of text, the limit", words.OneLine(name), maxTokenizeBytes)
}

// maxTokenizeBytes is the largest text that can be encoded: the text and its ids are held in memory.
const maxTokenizeBytes = 4 << 30

// encoder encodes with or without special tokens.
type encoder struct {
	tokenizer.Tokenizer
	special string
}

func (e encoder) AppendEncode(dst []int32, text []byte) ([]int32, error) {
	if e.special == specialNone {
		return e.Tokenizer.AppendEncode(dst, text)
	}
	ids, err := e.EncodeSpecial(text, e.special == specialAdd)
	return append(dst, ids...), err
}

func (e encoder) Cut(text []byte, most int) int {
	if e.special == specialNone {
		return e.Tokenizer.Cut(text, most)
	}
	return 0
}

// encodeFiles writes the ids of each file.
func encodeFiles(out *bufio.Writer, tok tokenizer.Tokenizer, o tokenizeFlags, names []string) error {
	enc := encoder{tok, o.special}
	var failed error // a read error
	type piece struct {
		name        string
		first, last bool
	}
	var pieces []piece // being encoded
	all := func(yield func([]byte) bool) {
		for _, name := range names {
			text, err := readText(name, o.invalidUTF8)
			if err != nil {
				failed = &troupe.SetupError{Err: err}
				return
			}
			done := 0
			first := true
			for p := range data.TextPieces(enc, text) {
				done += len(p)
				pieces = append(pieces, piece{name, first, done == len(text)})
				if first = false; !yield(p) {
					return
				}
			}
			if first { // an empty text may have ids too
				if pieces = append(pieces, piece{name, true, true}); !yield(nil) {
					return
				}
			}
		}
	}
	next, stop := iter.Pull(all)
	defer stop()
	at, written := 0, 0 // in this file: bytes, ids
	err := data.EncodeAll(enc, next, func(text []byte, ids []int32, err error) error {
		p := pieces[0]
		pieces = pieces[1:]
		if p.first {
			at, written = 0, 0
		}
		if err != nil {
			return &troupe.SetupError{Err: locate(p.name, at, err)}
		}
		if o.asJSON {
			writeIDs(out, ids, written, p.first, p.last)
		} else {
			err = showTokens(out, tok, ids)
		}
		at += len(text)
		written += len(ids)
		if p.last && !o.asJSON {
			_, err = fmt.Fprintf(out, "%s: %s of %s\n", words.OneLine(nameOf(p.name)), words.Plural(written, "token"), words.Plural(at, "byte"))
		}
		return err
	})
	return errors.Join(failed, err)
}

func nameOf(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// locate adds the file and the byte to an error of encoding.
func locate(name string, base int, err error) error {
	var at *tokenizer.TextError
	if errors.As(err, &at) {
		return fmt.Errorf("%s, byte %d: %w", nameOf(name), base+at.Offset, at.Err)
	}
	return fmt.Errorf("%s: %w", nameOf(name), err)
}

// writeIDs writes a part of a JSON array, of which the first written ids are out already.
func writeIDs(out *bufio.Writer, ids []int32, written int, first, last bool) {
	// The writer keeps its first error.
	if first {
		_ = out.WriteByte('[')
	}
	var number []byte
	for i, id := range ids {
		number = number[:0]
		if written+i > 0 {
			number = append(number, ',')
		}
		_, _ = out.Write(strconv.AppendInt(number, int64(id), 10))
	}
	if last {
		_, _ = out.WriteString("]\n")
	}
}

// showTokens writes one token per line.
func showTokens(out io.Writer, tok tokenizer.Tokenizer, ids []int32) error {
	for _, id := range ids {
		name, _ := tok.Token(id)
		note := ""
		if tok.IsSpecial(id) {
			note = "  special"
		}
		if _, err := fmt.Fprintf(out, "%7d  %q%s\n", id, name, note); err != nil {
			return err
		}
	}
	return nil
}

// decodeFiles writes the texts of arrays of ids.
func decodeFiles(out *bufio.Writer, tok tokenizer.Tokenizer, o tokenizeFlags, names []string) error {
	for _, name := range names {
		text, err := readAtMost(name, maxTokenizeBytes)
		if err != nil {
			return &troupe.SetupError{Err: err}
		}
		var ids []int32
		err = json.Unmarshal(text, &ids)
		if err == nil && ids == nil {
			err = errors.New("null instead of an array")
		}
		if err != nil {
			return &troupe.SetupError{Err: fmt.Errorf("%s: not an array of ids such as [1,2,3]: %w", nameOf(name), err)}
		}
		for i, id := range ids {
			if id < 0 || int(id) >= tok.Vocab() {
				return &troupe.SetupError{Err: fmt.Errorf("%s: the id %d at position %d is outside the tokenizer's vocabulary of %d", nameOf(name), id,
					i,
					tok.Vocab())}
			}
		}
		decoded := tok.Decode(ids)
		if o.special == specialNone {
			decoded = tok.DecodeText(ids)
		}
		if o.asJSON {
			enc := json.NewEncoder(out)
			enc.SetEscapeHTML(false)
			err = enc.Encode(string(decoded))
		} else {
			_, err = out.Write(decoded)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
