//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/troupe-ml/troupe"
)

// echo answers with the number of messages and the last one.
type echo struct{ interrupted bool }

func (e *echo) From() string { return "runs/echo" }

func (e *echo) Generate(ctx context.Context, o troupe.TextOptions, emit func([]byte) error) error {
	if o.Tokens == 0 { // the trial
		return nil
	}
	last := o.Messages[len(o.Messages)-1].Content
	o.Report.Tokens, o.Report.PromptTokens, o.Report.Context = 5, 7, 64
	if err := emit([]byte(strings.Repeat("#", len(o.Messages)) + last)); err != nil || last != "stop me" {
		return err
	}
	e.interrupted = true
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestConversation: lines are answered in one conversation, and commands are not sent to the model.
func TestConversation(t *testing.T) {
	var screen bytes.Buffer
	clock := time.Unix(0, 0)
	a := &app{out: &stream{w: &screen}, err: &screen, terminal: true, now: func() time.Time { clock = clock.Add(time.Second); return clock }}
	lines := "one\n\n/nonsense x\ntwo\n/system Be brief.\nthree\nstop me\n/reset\n//four\n/help\n/system\nfive\n/exit\nsix\n"
	model := &echo{}
	c := &conversation{app: a, model: model, o: troupe.TextOptions{Tokens: 9}, in: bufio.NewReader(strings.NewReader(lines))}
	if err := c.converse(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := screen.String()
	for _, want := range []string{
		"engine: loading the model\nchat with runs/echo: /help lists commands, /exit or Ctrl-D ends\n> #one\n(5 tokens, 4 tokens/s, the first after 1.0s; context 12 of 64)\n",
		"unknown command /nonsense, not sent to the model", "> ###two\n", "system message set", "> ##three\n", "> ####stop me\n(stopped)\n",
		"> new conversation\n> ##/four\n", "  /reset ", "no system message; new conversation\n> #five\n",
	} {
		if !strings.Contains(seen, want) {
			t.Errorf("no %q in\n%s", want, seen)
		}
	}
	if strings.Contains(seen, "six") || !model.interrupted {
		t.Errorf("the conversation did not end at /exit, or was not interrupted:\n%s", seen)
	}
}
