package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Piece is a part of a rendered conversation.
type Piece struct {
	Text string
	// Learn says that the assistant says it: what a model is to learn from the conversation.
	Learn bool
}

// Pieces renders a conversation and says which parts of it the assistant has written: the content of
// its messages with what ends its turn. The pieces together are what Render returns.
//
// Where the template has {% generation %}, that says it. Else each message of the assistant is
// rendered once more with a mark in place of its content: what differs is it. ends are the texts
// that may end a turn, such as "<|im_end|>" or the eos_token; where one follows the content it is
// the assistant's.
func (t *Template) Pieces(messages []Message, o Options, ends []string) ([]Piece, error) {
	text, spans, err := t.render(messages, o)
	if err != nil {
		return nil, err
	}
	if len(spans) == 0 {
		if spans, err = t.find(text, messages, o, ends); err != nil {
			return nil, err
		}
	}
	var pieces []Piece
	at := 0
	add := func(to int, learn bool) {
		if to > at {
			pieces = append(pieces, Piece{text[at:to], learn})
			at = to
		}
	}
	for _, s := range spans {
		add(s.from, false)
		add(s.to, true)
	}
	add(len(text), false)
	return pieces, nil
}

// mark stands for the content of a message. No template looks for it, and none trims it.
const mark = "\uE000\uE001mark\uE001\uE000"

// find is where the contents of the assistant's messages are.
func (t *Template) find(text string, messages []Message, o Options, ends []string) ([]span, error) {
	var spans []span
	for i, m := range messages {
		if m.Role != "assistant" {
			continue
		}
		if m.Raw != nil {
			return nil, fmt.Errorf("%w: message %d of the assistant has more than a text, and the template doesn't say with {%% generation %%} which part of it is the assistant's", ErrRender, i+1)
		}
		marked := append([]Message{}, messages...)
		marked[i].Content = mark
		with, _, err := t.render(marked, o)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i+1, err)
		}
		before, after, found := strings.Cut(with, mark)
		s := span{common(before, text), len(text) - commonEnd(after, text)}
		if least := len(spans) - 1; !found || s.from > s.to && m.Content != "" || least >= 0 && s.from < spans[least].to {
			return nil, fmt.Errorf("%w: the template doesn't write the content of message %d of the assistant where it could be told from the rest", ErrRender, i+1)
		}
		s.to = max(s.to, s.from)
		s.to += ending(text[s.to:], ends)
		spans = append(spans, s)
	}
	return spans, nil
}

// common is how many bytes two texts begin with alike, up to a whole character.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(b) && !utf8.RuneStart(b[n]) {
		n--
	}
	return n
}

// commonEnd is how many bytes two texts end with alike, from a whole character.
func commonEnd(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	for n > 0 && !utf8.RuneStart(b[len(b)-n]) {
		n--
	}
	return n
}

// ending is the length of what ends a turn at the beginning of a text; white space may be before it.
func ending(text string, ends []string) int {
	rest := strings.TrimLeft(text, " \n")
	longest := 0
	for _, end := range ends {
		if end != "" && strings.HasPrefix(rest, end) {
			longest = max(longest, len(text)-len(rest)+len(end))
		}
	}
	return longest
}
