package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/chat/builtin"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// Text turns texts and conversations into the ids of a model. Training, evaluation and generation
// use it, so that a text has the same ids in all of them. It is safe for concurrent use.
type Text struct {
	tok      tokenizer.Tokenizer
	Talk     rundir.Talk
	template *chat.Template // nil: there is none
	bad      error          // why the template can't be used
	plain    bool           // names of special tokens in texts are text
}

// NewText returns the Text of a tokenizer and its accompanying files; special is data.special_tokens.
func NewText(tok tokenizer.Tokenizer, talk rundir.Talk, special string) *Text {
	m := &Text{tok: tok, Talk: talk, plain: special == config.SpecialAsText}
	if talk.Template != "" {
		m.template, m.bad = chat.Parse(talk.Template)
	}
	return m
}

// ErrNoTemplate: the model has no chat template.
var ErrNoTemplate = fmt.Errorf("no chat template (%s, or chat_template in %s)", rundir.TemplateFile, rundir.TokenizerConfigFile)

// ErrTemplate: the model's chat template can't be used.
var ErrTemplate = errors.New("the chat template can't be used")

// ChooseTemplate says how to choose a chat template.
var ChooseTemplate = fmt.Sprintf("choose one with data.chat_template in a config, or --chat-template of a command: %s, or the path of a Jinja file",
	strings.Join(builtin.Names(), ", "))

// BadTemplate is why the chat template can't be used; nil: it can, or there is none.
func (m *Text) BadTemplate() error { return m.bad }

// Describe says which tokens begin and end a text, and which of the model's files say so; "": none does.
func (m *Text) Describe() string { return m.Talk.Describe(m.tok) }

// Encode encodes a text after what begins one, unless the text begins so itself.
func (m *Text) Encode(text string) (ids []int32, err error) {
	if m.plain {
		ids, err = m.tok.Encode([]byte(text))
	} else {
		ids, err = m.tok.EncodeSpecial([]byte(text), false)
	}
	if err != nil || m.begins(ids) {
		return ids, err
	}
	return append(slices.Clone(m.Talk.Before), ids...), nil
}

// begins reports whether ids have at their beginning what begins a text.
func (m *Text) begins(ids []int32) bool {
	n := len(m.Talk.Before)
	return len(ids) >= n && slices.Equal(ids[:n], m.Talk.Before)
}

// ended appends what ends a document, unless its text ends so itself.
func (m *Text) ended(ids []int32) []int32 {
	end := m.Talk.After
	if n := len(m.Talk.End); n > 0 && !endsWith(end, m.Talk.End) {
		end = append(slices.Clone(end), m.Talk.End...)
	}
	if endsWith(ids, end) {
		return ids
	}
	return append(ids, end...)
}

func endsWith(ids, end []int32) bool {
	n := len(ids) - len(end)
	return n >= 0 && slices.Equal(ids[n:], end)
}

// Question encodes a conversation up to where the answer begins.
// fits, if not nil, may refuse the text by its bytes before it is encoded.
func (m *Text) Question(messages []chat.Message, o chat.Options, fits func(bytes int) error) ([]int32, error) {
	o.AddGenerationPrompt, o.Special = true, m.Talk.Special
	text, err := m.template.Render(messages, o)
	if err == nil && fits != nil {
		err = fits(len(text))
	}
	if err != nil {
		return nil, err
	}
	ids, err := m.tok.EncodeSpecial([]byte(text), false)
	if err == nil && len(ids) == 0 {
		err = fmt.Errorf("%w: the chat template renders the messages as an empty text", plan.ErrOptions)
	}
	return ids, err
}

// ToolMarker is the text with which the chat template begins a call of a function: see chat.Template.CallMarker.
func (m *Text) ToolMarker(tools json.RawMessage) string {
	if m.template == nil {
		return ""
	}
	return m.template.CallMarker(chat.Options{Tools: tools, Special: m.Talk.Special})
}

// Stops are the ids that end what the model writes: those of its files, and that with which the chat template
// ends an answer to messages.
func (m *Text) Stops(messages []chat.Message, o chat.Options) []int32 {
	if m.template == nil || len(messages) == 0 {
		return m.Talk.Ends
	}
	o.Special = m.Talk.Special
	ids, err := m.tok.EncodeSpecial([]byte(m.template.Ending(messages, o)), false)
	if err != nil {
		return m.Talk.Ends
	}
	for _, id := range ids {
		if m.ends(id) {
			if slices.Contains(m.Talk.Ends, id) {
				break
			}
			return append(slices.Clone(m.Talk.Ends), id)
		}
	}
	return m.Talk.Ends
}

// ends reports whether a token after an answer ends it: all special ones do.
func (m *Text) ends(id int32) bool {
	return m.tok.IsSpecial(id) || slices.Contains(m.Talk.Ends, id)
}

// undefined says which special tokens the chat template uses and no file of the model names.
func (m *Text) undefined() string {
	if m.template == nil {
		return ""
	}
	var names []string
	for _, name := range m.template.Names("bos_token", "eos_token") {
		if m.Talk.Special[name] == "" {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("the chat template uses %s, but %s does not define it: it renders as an empty text", strings.Join(names, " and "),
		rundir.TokenizerConfigFile)
}

// Warnings say what is doubtful about the model's files.
func (m *Text) Warnings() []string {
	all := slices.Clone(m.Talk.Warnings)
	for _, text := range []string{m.undefined(), m.unknownTokens()} {
		if text != "" {
			all = append(all, text)
		}
	}
	return all
}

// tokenName matches the names of special tokens in published chat templates.
var tokenName = regexp.MustCompile(`<\|[^<>|\s]+\|>|<(?:start|end)_of_turn>`)

// unknownTokens says which special tokens a chosen chat template writes and the tokenizer does not have. It says nothing if answers
// still end with a special token.
func (m *Text) unknownTokens() string {
	if !m.Talk.Chosen || m.template == nil {
		return ""
	}
	said := []chat.Message{{Role: "user", Content: "x"}, {Role: "assistant", Content: "x"}}
	o := chat.Options{Special: m.Talk.Special}
	text, err := m.template.Render(said, o)
	if err != nil {
		return ""
	}
	unknown := func(text string) (names []string, tokens int) {
		for _, name := range tokenName.FindAllString(text, -1) {
			if _, ok := m.tok.TokenID(name); !ok && !slices.Contains(names, name) {
				ids, _ := m.tok.Encode([]byte(name)) // only counted
				names, tokens = append(names, name), max(tokens, len(ids))
			}
		}
		return names, tokens
	}
	if names, _ := unknown(m.template.Ending(said[:1], o)); len(names) == 0 {
		return ""
	}
	names, tokens := unknown(text)
	return fmt.Sprintf("the tokenizer has no token for %s of the chat template: each is read as plain text (up to %d tokens), and generation cannot stop at it; choose a template whose turns end with the model's end token, such as zephyr or mistral",
		strings.Join(names, ", "), tokens)
}

// answer is a turn as tokens: which are learned, and whether one that ends it is among them.
type answer struct {
	from, to int32 // bytes of the text
	end      int32 // the token that ends it
	ends     bool
}

// answer says which bytes of a turn are learned: up to the token that ends it. That is the first special one
// after the content or, where it is not known where the content ends, the last one. first is a token that is
// not after the turn's first one.
func (m *Text) answer(text string, turn chat.Turn, ids []int32, spans []tokenizer.Span, first int) answer {
	a := answer{from: int32(turn.From), to: int32(turn.To)}
	if turn.Said >= 0 {
		a.to = int32(turn.Said)
	}
	after := int32(max(turn.From, turn.Said))
	for i := first; i < len(ids); i++ {
		s := spans[i]
		if s.From < after || !m.ends(ids[i]) {
			if int(s.From) > turn.To {
				break
			}
			continue
		}
		if int(s.To) > turn.To {
			// A template may end a turn by beginning the next one.
			if !a.ends && slices.Contains(m.Talk.Ends, ids[i]) && s.From >= a.to && blank(text[a.to:s.From]) {
				a.to, a.end, a.ends = s.To, ids[i], true
			}
			break
		}
		a.end, a.ends = ids[i], true
		if a.to = s.To; turn.Said >= 0 {
			break
		}
	}
	if turn.Marked { // the template says how far it goes
		a.to = int32(turn.To)
	}
	return a
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// learn marks the tokens that have a byte of a part of a text, from the one numbered first on, and returns the
// number of the first one that it looked at in vain.
func learn(marks []bool, spans []tokenizer.Span, from, to int32, first int) int {
	for first < len(spans) && spans[first].To < from {
		first++
	}
	for i := first; i < len(spans) && spans[i].From < to; i++ {
		if s := spans[i]; s.To > from || s.To == s.From && s.From == from {
			marks[i] = true
		}
	}
	return first
}

var errTools = errors.New("\"tools\" must be a list of functions, or a string with such a list")
