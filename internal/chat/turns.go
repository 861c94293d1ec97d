package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Turn is the assistant's part of one message in a rendered conversation: from the start of an
// answer (the generation prompt) to the start of the next message.
type Turn struct {
	Message  int // number of the message, from 0
	From, To int // range of bytes in the text
	// Said is the end of the message's content; the rest, up to To, comes from the template. -1:
	// unknown, for example if the template writes tool calls after the content.
	Said int
	// Marked says that the template marked the turn with {% generation %}: it belongs to the
	// assistant up to To.
	Marked bool
}

// Turns renders a conversation, as Render does, and finds the assistant's parts of it.
//
// If the template has {% generation %}, that determines the parts. Otherwise a turn starts where
// the messages before it, rendered with the generation prompt, end: the text with which a model is
// prompted. If the conversation does not start with that text, for example because the generation
// prompt starts a thought that the template omits from earlier answers, the turn starts with its
// content. A turn ends where the messages up to it, rendered alone, end. Messages that are not
// learned have no turn.
func (t *Template) Turns(messages []Message, o Options) (text string, turns []Turn, err error) {
	text, marked, err := t.render(messages, o)
	if err != nil {
		return "", nil, err
	}
	last := 0
	for i, m := range messages {
		if m.Role != "assistant" || len(marked) > 0 && !m.Skip {
			continue
		}
		turn, err := t.turn(text, messages, i, o)
		if err != nil {
			return "", nil, err
		}
		if turn.From < last || turn.To < turn.From || turn.Said >= 0 && turn.Said < turn.From {
			return "", nil, unclear(i)
		}
		switch last = turn.To; {
		case len(marked) > 0:
			marked = without(marked, turn)
		case !m.Skip:
			turns = append(turns, turn)
		}
	}
	for _, s := range marked {
		if s.from < s.to {
			turns = append(turns, Turn{Message: -1, From: s.from, To: s.to, Said: -1, Marked: true})
		}
	}
	return text, turns, nil
}

func without(spans []span, turn Turn) []span {
	kept := spans[:0]
	for _, s := range spans {
		if s.to <= turn.From || s.from >= turn.To {
			kept = append(kept, s)
		}
	}
	return kept
}

func unclear(i int) error {
	return fmt.Errorf("%w: cannot find message %d of the assistant in the rendered conversation: the template does not write it separately from the other messages", ErrRender,
		i+1)
}

// mark stands at the end of a message's content, or in its place. Templates neither search nor trim
// it.
const mark = "\uE000\uE001mark\uE001\uE000"

// turn finds the turn of a message in a rendered conversation.
func (t *Template) turn(text string, messages []Message, i int, o Options) (Turn, error) {
	turn := Turn{Message: i, From: -1, To: -1, Said: -1}
	if i > 0 { // nothing asks for an answer that comes first
		asking := o
		asking.AddGenerationPrompt = true
		if prompt, _, err := t.render(messages[:i], asking); err == nil && strings.HasPrefix(text, prompt) {
			turn.From = len(prompt)
		}
	}
	alone := text
	if i+1 < len(messages) {
		var err error
		if alone, _, err = t.render(messages[:i+1], o); err != nil {
			alone = mark // which no text begins with
		}
	}
	if strings.HasPrefix(text, alone) {
		turn.To = len(alone)
		if after, ok := t.after(messages[:i+1], i, o); ok && strings.HasSuffix(alone, after) {
			turn.Said = len(alone) - len(after)
		}
	}
	if turn.From >= 0 && turn.To >= turn.From {
		return turn, nil
	}
	return t.compare(turn, text, messages, i, o)
}

// after renders messages with a mark at the end of one's content, and returns what follows it.
func (t *Template) after(messages []Message, i int, o Options) (string, bool) {
	m, ok := messages[i].marked()
	if !ok {
		return "", false
	}
	_, after, ok := t.cut(messages, i, m, o)
	return after, ok
}

// cut renders messages, one of them replaced, and returns what is before and after the last mark.
func (t *Template) cut(messages []Message, i int, with Message, o Options) (before, after string, ok bool) {
	all := append([]Message{}, messages...)
	all[i] = with
	text, _, err := t.render(all, o)
	at := strings.LastIndex(text, mark)
	if err != nil || at < 0 {
		return "", "", false
	}
	return text[:at], text[at+len(mark):], true
}

// compare fills in what is not known of a turn yet: the conversation with a mark in place of the message
// differs from the conversation there alone.
func (t *Template) compare(turn Turn, text string, messages []Message, i int, o Options) (Turn, error) {
	instead, last := messages[i].with(mark)
	before, after, found := t.cut(messages, i, instead, o)
	if found && !last && turn.From < 0 && turn.To >= 0 { // calls follow the content
		turn.From = common(before, text)
		return turn, nil
	}
	if !found || !last { // what it has besides content may be all that is written
		instead = Message{Role: messages[i].Role, Content: mark}
		if before, after, found = t.cut(messages, i, instead, o); !found {
			return turn, unclear(i)
		}
	}
	from, said := common(before, text), len(text)-commonEnd(after, text)
	if from > said {
		if messages[i].Content != "" {
			return turn, unclear(i)
		}
		said = from
	}
	if turn.From < 0 {
		turn.From = from
	}
	if turn.To < turn.From {
		turn.Said, turn.To = said, said
		if _, rest, ok := t.cut(messages[:i+1], i, instead, o); ok {
			turn.To += common(rest, text[said:])
		}
	}
	return turn, nil
}

// Ending returns what the template writes after an answer to messages; "" if unknown.
func (t *Template) Ending(messages []Message, o Options) string {
	all := append(append([]Message{}, messages...), Message{Role: "assistant", Content: mark})
	_, after, _ := t.cut(all, len(messages), all[len(messages)], o)
	return after
}

// common is the length of what two texts have in common at their beginnings, up to a whole character.
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

// commonEnd is the length of what two texts have in common at their ends, from a whole character.
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

// Names returns those of the given variables that occur in the template.
func (t *Template) Names(of ...string) (names []string) {
	for _, name := range of {
		if t.names[name] {
			names = append(names, name)
		}
	}
	return names
}
