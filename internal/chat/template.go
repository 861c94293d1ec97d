package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// Template is a chat template. It is safe for concurrent use.
type Template struct {
	parsed *exec.Template
	names  map[string]bool // names that occur in it
}

// Options configures a rendering.
type Options struct {
	// AddGenerationPrompt ends the text with the start of an assistant's answer.
	AddGenerationPrompt bool
	// Special holds the texts of the special tokens that templates use: "bos_token", "eos_token"
	// and so on.
	Special map[string]string
	// Tools is a JSON array of functions that the assistant may call; nil: none.
	Tools json.RawMessage
	// Vars holds further variables, such as "enable_thinking": texts, numbers, booleans.
	Vars map[string]any
	// Now is the time for templates that write the date. If it is zero they get none: training data
	// must not differ from day to day.
	Now time.Time
}

// name is the template's name in the library.
const name = "/chat_template"

// Parse reads a template. The error is an ErrTemplate with the line.
func Parse(source string) (t *Template, err error) {
	defer func() {
		if v := recover(); v != nil {
			t, err = nil, fmt.Errorf("%w: it cannot be read: something in it is not supported (%v)", ErrTemplate, v)
		}
	}()
	if len(source) > MaxTemplateBytes {
		return nil, fmt.Errorf("%w: it has %d bytes; the limit is %d", ErrTemplate, len(source), MaxTemplateBytes)
	}
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true // as in transformers
	read, err := check(source, c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	loader, err := loaders.NewMemoryLoader(map[string]string{name: read})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	e := environment()
	parsed, err := exec.NewTemplate(name, c, loader, e)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrTemplate, plain(err))
	}
	own(parsed, c, loader, e)
	return &Template{parsed, variablesIn(source, c)}, nil
}

// plain returns an error of the library without the template, which it quotes.
func plain(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, "': "); at >= 0 && strings.HasPrefix(text, "failed to parse template") {
		text = text[at+3:]
	}
	return strictjson.Plain(text)
}

// Render returns the conversation in the form in which the model was trained to see it. The error
// is an ErrRender: the template failed, refused the conversation (then the error has its words), or
// exceeded a limit.
func (t *Template) Render(messages []Message, o Options) (string, error) {
	text, _, err := t.render(messages, o)
	return text, err
}

// span is a part of a text: the bytes [from, to).
type span struct{ from, to int }

func (t *Template) render(messages []Message, o Options) (text string, generated []span, err error) {
	b := &budget{steps: maxSteps}
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		text, generated = "", nil
		if b.raised != "" {
			err = fmt.Errorf("%w: the template says: %s", ErrRender, strictjson.Quote(string(b.raised)))
			return
		}
		switch over := v.(type) {
		case limitError:
			err = fmt.Errorf("%w: %w", ErrRender, over)
			return
		case faultAt:
			err = fmt.Errorf("%w: line %d: %s", ErrRender, over.line, strictjson.Plain(string(over.fault)))
			return
		case fault:
			err = fmt.Errorf("%w: %s", ErrRender, strictjson.Plain(string(over)))
			return
		}
		err = fmt.Errorf("%w: the template does something that is not supported (%v)", ErrRender, v)
	}()
	vars, err := variables(messages, o)
	if err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrRender, err)
	}
	vars[budgetName] = b
	if err := t.parsed.Execute(b, exec.NewContext(vars)); err != nil {
		var raised raisedError
		if errors.As(err, &raised) || findRaised(b, &raised) {
			return "", nil, fmt.Errorf("%w: the template says: %s", ErrRender, strictjson.Quote(string(raised)))
		}
		return "", nil, fmt.Errorf("%w: %s", ErrRender, strictjson.Plain(err.Error()))
	}
	return b.out.String(), b.generated, nil
}

// variables are what a template sees.
func variables(messages []Message, o Options) (map[string]any, error) {
	if len(messages) > MaxMessages {
		return nil, fmt.Errorf("there are %d messages; the limit is %d", len(messages), MaxMessages)
	}
	list, total := make([]any, len(messages)), len(o.Tools)
	for i, m := range messages {
		total += len(m.Content) + len(m.Raw)
		if total > MaxInputBytes {
			return nil, fmt.Errorf("the messages have more than %d bytes", MaxInputBytes)
		}
		v, err := m.value()
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		list[i] = v
	}
	vars := map[string]any{"messages": list, "tools": null, "documents": null, "add_generation_prompt": o.AddGenerationPrompt}
	for name, v := range o.Vars {
		vars[name] = v
	}
	for name, text := range o.Special {
		vars[name] = text
	}
	if o.Tools != nil {
		tools, err := fromJSON(o.Tools)
		if err != nil {
			return nil, fmt.Errorf("tools: %w", err)
		}
		if _, is := tools.([]any); !is {
			return nil, errors.New("tools must be a JSON array")
		}
		vars["tools"] = tools
	}
	if !o.Now.IsZero() {
		vars["strftime_now"] = strftime(o.Now)
	}
	return vars, nil
}

// budget is one rendering: its remaining steps, and its output.
type budget struct {
	steps     int
	depth     int // depth of macros
	out       strings.Builder
	generated []span // spans of the generation tag
	raised    raisedError
	kept      *exec.Value // set by keep, for pick
}

// budgetName is the variable of the budget; no template can name it.
const budgetName = "\x00budget"

// limitError ends a rendering that exceeded a limit.
type limitError string

func (e limitError) Error() string { return string(e) }

func (b *budget) spend(steps int) {
	if b.steps -= steps; b.steps < 0 {
		panic(limitError(fmt.Sprintf("the template has not ended after %d steps", maxSteps)))
	}
}

// Write takes what the template prints.
func (b *budget) Write(p []byte) (int, error) {
	b.spend(1)
	if b.out.Len()+len(p) > MaxOutputBytes {
		panic(limitError(fmt.Sprintf("the template has written more than %d bytes", MaxOutputBytes)))
	}
	return b.out.Write(p)
}

var _ io.Writer = (*budget)(nil)

// of is the budget of a rendering.
func of(c *exec.Context) *budget {
	v, _ := c.Get(budgetName)
	b, ok := v.(*budget)
	if !ok {
		panic(limitError("its budget is lost"))
	}
	return b
}

// raisedError is what a template said with raise_exception.
type raisedError string

func (e raisedError) Error() string { return string(e) }

// findRaised is for errors that have lost their chain on the way.
func findRaised(b *budget, e *raisedError) bool {
	*e = b.raised
	return b.raised != ""
}
