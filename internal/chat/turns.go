package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Turn is what the assistant says in one message, as a part of a rendered conversation: from what
// begins an answer (the generation prompt) to what begins the next message.
type Turn struct {
	Message  int // its number, from 0
	From, To int // bytes of the text
	// Said is where the message's content ends; what follows up to To is the template's. -1: it is
	// not known, as where the template writes tool calls after the content.
	Said int
	// Marked says that the template has marked the turn with {% generation %}: it is the assistant's
	// up to To.
	Marked bool
}

// Turns renders a conversation, as Render does, and says which parts of it are the assistant's.
//
// Where the template has {% generation %}, that says it. Else a turn begins where the messages
// before it, rendered with the generation prompt, end: what a model is asked with. If the
// conversation does not begin so, as with a template whose generation prompt begins a thought that it leaves out of
// earlier answers, the turn begins with its content. A turn ends where the messages up to it,
// rendered alone, end. Messages that are not to be learned have no turn.
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
	return fmt.Errorf("%w: the template does not write message %d of the assistant where it can be told from the other messages", ErrRender,
		i+1)
}

// mark stands at the end of a message's content, or in its place. No template looks for it, and none
// trims it.
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

// Ending is what the template writes after an answer to messages: "" where that is not known.
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

// Names returns those of some variables that the template has.
func (t *Template) Names(of ...string) (names []string) {
	for _, name := range of {
		if t.names[name] {
			names = append(names, name)
		}
	}
	return names
}
