package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/chat"
)

// answerer generates texts, as a troupe.Generator does.
type answerer interface {
	Generate(ctx context.Context, o troupe.TextOptions, emit func(text []byte) error) error
	From() string
}

// conversation is a chat with a person at a terminal.
type conversation struct {
	app   *app
	model answerer
	o     troupe.TextOptions
	in    *bufio.Reader
	said  []chat.Message
}

const chatHelp = `  /exit           end (also /bye, /quit and Ctrl-D)
  /reset          start a new conversation with the same system message
  /system TEXT    set the system message and start a new conversation
  /help           list these commands
Ctrl-C stops an answer. A line that starts with // is sent with one slash.`

// converse talks until the person leaves.
func (c *conversation) converse(ctx context.Context) error {
	say(c.app.err, "loading the model")
	// Everything that can fail fails now, and the first answer does not wait for the weights.
	trial := c.o
	trial.Tokens, trial.Report = 0, nil
	trial.Messages = append(append([]chat.Message{}, c.said...), chat.Message{Role: "user", Content: "x"})
	if err := c.model.Generate(ctx, trial, func([]byte) error { return nil }); err != nil {
		return err
	}
	c.note("chat with %s: /help lists commands, /exit or Ctrl-D ends", words.OneLine(c.model.From()))
	for {
		c.app.printf("> ")
		line, err := readLine(c.in)
		if errors.Is(err, io.EOF) {
			c.app.printf("\n")
			return nil
		}
		if err != nil {
			return err
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		if strings.HasPrefix(line, "/") && !strings.HasPrefix(line, "//") {
			if c.command(line) {
				return nil
			}
			continue
		}
		if strings.HasPrefix(line, "//") {
			line = line[1:]
		}
		if err := c.answer(ctx, line); err != nil {
			return err
		}
	}
}

// note prints a line that is not part of the conversation.
func (c *conversation) note(format string, args ...any) {
	_, _ = fmt.Fprintf(c.app.err, format+"\n", args...)
}

// command carries out a line that starts with a slash. It reports whether the chat ends.
func (c *conversation) command(line string) (ends bool) {
	name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch name {
	case "/exit", "/bye", "/quit":
		return true
	case "/reset":
		c.reset()
		c.note("new conversation")
	case "/system":
		c.said = nil
		if text = strings.TrimSpace(text); text == "" {
			c.note("no system message; new conversation")
			break
		}
		c.said = []chat.Message{{Role: "system", Content: text}}
		c.note("system message set; new conversation")
	case "/help", "/?":
		c.note("%s", chatHelp)
	default:
		c.note("unknown command %s, not sent to the model; /help lists the commands, and //... sends a line that starts with a slash",
			words.OneLine(name))
	}
	return false
}

// reset forgets everything except the system message.
func (c *conversation) reset() {
	if len(c.said) > 0 && c.said[0].Role == "system" {
		c.said = c.said[:1]
		return
	}
	c.said = nil
}

// answer answers a line. An interrupt ends the answer, and the chat continues.
func (c *conversation) answer(ctx context.Context, line string) error {
	o := c.o
	o.Messages = append(append([]chat.Message{}, c.said...), chat.Message{Role: "user", Content: line})
	o.Report = &troupe.GenerateReport{}
	answering, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	var text strings.Builder
	began, first := c.app.now(), time.Time{}
	err := c.model.Generate(answering, o, func(b []byte) error {
		if first.IsZero() {
			first = c.app.now()
		}
		text.Write(b)
		_, err := c.app.programs().Write(b)
		return err
	})
	stopped := answering.Err() != nil && ctx.Err() == nil
	if err != nil && !stopped {
		return err
	}
	c.app.printf("\n")
	if stopped {
		c.note("(stopped)")
	}
	c.said = append(o.Messages, chat.Message{Role: "assistant", Content: text.String()})
	c.note("%s", speed(o.Report, began, first, c.app.now()))
	return nil
}

// speed says how fast an answer was, and how full the context is.
func speed(r *troupe.GenerateReport, began, first, end time.Time) string {
	used := min(r.Context, r.PromptTokens+r.Tokens)
	text := fmt.Sprintf("(%s", words.Plural(r.Tokens, "token"))
	if after := end.Sub(first).Seconds(); r.Tokens > 1 && !first.IsZero() && after > 0 {
		text += fmt.Sprintf(", %s tokens/s, the first after %s", few(float64(r.Tokens-1)/after), words.Duration(first.Sub(began)))
	}
	return text + fmt.Sprintf("; context %s of %s)", words.Count(int64(used)), words.Count(int64(r.Context)))
}
