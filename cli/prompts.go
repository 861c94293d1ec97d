package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/chat"
)

// usualBatch is the default of texts that are generated at once.
const usualBatch = 8

// promptFile reads prompts, line by line.
type promptFile struct {
	name  string
	in    *bufio.Reader
	lines bool // of JSON
	at    int
	chat  *talking // with --chat
	tools json.RawMessage
	bad   error // why no further line was read, once all returned by all are generated

	mu    sync.Mutex
	texts []int // lines of the prompts
}

// all returns the options of the texts of a file, up to its first error. One goroutine may read them.
func (p *promptFile) all(o troupe.TextOptions) iter.Seq[troupe.TextOptions] {
	return func(yield func(troupe.TextOptions) bool) {
		for {
			of, err := p.next(o)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				p.bad = p.fail(p.at, err)
				return
			}
			p.mu.Lock()
			p.texts = append(p.texts, p.at)
			p.mu.Unlock()
			if !yield(of) {
				return
			}
		}
	}
}

// line returns the line of a prompt.
func (p *promptFile) line(text int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.texts[text]
}

// next returns the options of the next text. The error at the end is io.EOF.
func (p *promptFile) next(o troupe.TextOptions) (troupe.TextOptions, error) {
	for {
		line, err := readLine(p.in)
		if errors.Is(err, io.EOF) {
			return o, err
		}
		p.at++
		if err == nil && strings.TrimSpace(line) == "" {
			continue
		}
		o.Prompt, o.Tools = line, p.tools
		if err == nil && p.lines {
			err = readPrompt(line, &o)
		}
		if err == nil && p.chat != nil && o.Messages == nil {
			o.Messages, o.Prompt = append(p.chat.opening(), chat.Message{Role: "user", Content: o.Prompt}), ""
		}
		return o, err
	}
}

// fail names the line of an error.
func (p *promptFile) fail(line int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--prompts %s, line %d: %w", p.name, line, err)
}

// opening is what a conversation has before the first prompt.
func (t *talking) opening() []chat.Message {
	if t.system == "" {
		return nil
	}
	return []chat.Message{{Role: "system", Content: t.system}}
}

// readPrompt reads a line of JSON.
func readPrompt(line string, o *troupe.TextOptions) error {
	dec, err := strictjson.NewDecoder([]byte(line))
	if err != nil {
		return usagef("%v", err)
	}
	o.Prompt = ""
	has := false
	err = strictjson.Object(dec, func(key string) (err error) {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return err
		}
		switch key {
		case "prompt":
			has = true
			if json.Unmarshal(v, &o.Prompt) != nil {
				err = fmt.Errorf("prompt must be a text")
			}
		case "messages":
			has = true
			o.Messages, err = chat.ParseMessages(v)
		case "tools":
			o.Tools = v
		case "seed":
			if json.Unmarshal(v, &o.Seed) != nil {
				err = fmt.Errorf("seed must be a whole number from 0")
			}
		default:
			err = fmt.Errorf("unknown key %s: use prompt, messages, tools or seed", strictjson.Quote(key))
		}
		return err
	})
	if err == nil {
		err = strictjson.End(dec)
	}
	if err == nil && !has {
		err = fmt.Errorf("there is no prompt and there are no messages")
	}
	if err != nil {
		return usagef("%v", err)
	}
	return nil
}

// generateAll continues the prompts of a file, several at once, and prints the texts in the order of the file. The first
// error ends it.
func (a *app) generateAll(ctx context.Context, o troupe.GenerateOptions, t talking, given func(flag string) bool) (err error) {
	p := &promptFile{name: t.prompts, lines: strings.HasSuffix(t.prompts, ".jsonl")}
	if t.chat {
		p.chat = &t
	}
	if t.tools != "" {
		if p.tools, err = readTools(t.tools); err != nil {
			return err
		}
	}
	file := os.Stdin
	if t.prompts != "-" {
		if file, err = os.Open(t.prompts); err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // nothing was written
	}
	p.in = bufio.NewReader(file)
	b, err := troupe.OpenBatch(o.ModelOptions, troupe.BatchOptions{Texts: t.batch})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	d, err := b.Defaults()
	if err != nil {
		return err
	}
	a.applyDefaults(d, &o.TextOptions, given)
	var warning sync.Mutex
	o.Warn = func(text string) {
		warning.Lock()
		defer warning.Unlock()
		a.warn(text)
	}
	err = b.GenerateAll(ctx, p.all(o.TextOptions), func(g troupe.Generated) error {
		if g.Err != nil {
			return p.fail(p.line(g.Index), g.Err)
		}
		return a.json(generated{g.Text, g.Report})
	})
	if err == nil {
		err = p.bad
	}
	return err
}
