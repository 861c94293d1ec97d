package corpus

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/data"
)

// conversation renders the messages that read returns with the model's chat template and encodes the text. Names of
// special tokens are tokens, also in the contents of messages, as in transformers.
func (r *documentReader) conversation(m row, read func() ([]chat.Message, error)) (d data.Document, err error) {
	if r.template == nil {
		return d, fmt.Errorf("the object is a conversation, but the model has %w; %s", ErrNoTemplate, ChooseTemplate)
	}
	said, err := read()
	if err != nil {
		return d, err
	}
	tools, err := readTools(m.value("tools"))
	if err != nil {
		return d, err
	}
	text, turns, err := r.template.Turns(said, chat.Options{Special: r.Talk.Special, Tools: tools})
	if err != nil {
		return d, err
	}
	ids, spans, err := r.tok.EncodeSpans([]byte(text), false)
	if err != nil {
		return d, err
	}
	d = data.Document{IDs: ids, Learn: make([]bool, len(ids)), Talk: true}
	found := noted{ends: make(map[int32]int)}
	first := 0
	for _, turn := range turns {
		a := r.answer(text, turn, ids, spans, first)
		first = learn(d.Learn, spans, a.from, a.to, first)
		if found.answers++; a.ends {
			found.ends[a.end]++
		}
	}
	r.note(found)
	return d, nil
}

// readTools reads a list of functions. It also accepts the list as a string, as tables store it.
func readTools(tools json.RawMessage) (json.RawMessage, error) {
	var text string
	if tools == nil || string(tools) == "null" {
		return nil, nil
	}
	if json.Unmarshal(tools, &text) != nil {
		return tools, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, errTools
	}
	if text = strings.TrimSpace(text); text == "null" {
		return nil, nil
	}
	return json.RawMessage(text), nil
}

// messageNames returns the keys of messages, if data.fields renames them.
func (m row) messageNames() chat.Names {
	return chat.Names{Role: m.names["role"], Content: m.names["content"]}
}

// messages reads a list of messages with a role and a content.
func (m row) messages() ([]chat.Message, error) { return m.messagesOf("messages") }

func (m row) messagesOf(key string) ([]chat.Message, error) {
	if names := m.messageNames(); names != (chat.Names{}) {
		return chat.ParseNamed(m.value(key), names)
	}
	return chat.ParseMessages(m.value(key))
}

// shareGPT reads a list of messages with "from" and "value", as in files of ShareGPT. The system message may stand apart.
func (m row) shareGPT() ([]chat.Message, error) {
	said, err := chat.ParseNamed(m.value("conversations"), m.messageNames())
	if err != nil {
		return nil, err
	}
	return m.withSystem(said)
}

// alpaca reads an instruction with an optional input and its output, as in files of Alpaca: a question and its answer.
func (m row) alpaca() ([]chat.Message, error) {
	if v := m.value("history"); v != nil && string(v) != "null" && string(v) != "[]" {
		return nil, errors.New("\"history\" beside \"instruction\" is not supported; write the whole conversation as \"messages\"")
	}
	question, err := m.text("instruction")
	input, err2 := m.textOr("input")
	answer, err3 := m.text("output")
	if err := errors.Join(err, err2, err3); err != nil {
		return nil, err
	}
	if strings.TrimSpace(input) != "" {
		question += "\n\n" + input
	}
	return m.withSystem([]chat.Message{{Role: "user", Content: question}, {Role: "assistant", Content: answer}})
}

// withSystem puts the text of "system" in front of messages.
func (m row) withSystem(said []chat.Message) ([]chat.Message, error) {
	system, err := m.textOr("system")
	if err != nil || system == "" {
		return said, err
	}
	if said[0].Role == "system" {
		return nil, fmt.Errorf("%q is given, but the messages start with a system message, too; keep one of them", m.name("system"))
	}
	return append([]chat.Message{{Role: "system", Content: system}}, said...), nil
}

// promptMessages reads a prompt and a completion that are lists of messages. Only the completion is learned.
func (m row) promptMessages() ([]chat.Message, error) { return m.promptAnd("completion") }

// promptAnd is promptMessages for a key of an answer.
func (m row) promptAnd(answerKey string) ([]chat.Message, error) {
	for _, key := range []string{"prompt", answerKey} {
		if !m.isList(key) {
			return nil, fmt.Errorf("%q must be a list of messages, because the other one of prompt and %s is", m.name(key), answerKey)
		}
	}
	said, err := m.messagesOf("prompt")
	if err != nil {
		return nil, fmt.Errorf("%q: %w", m.name("prompt"), err)
	}
	for i := range said {
		said[i].Skip = true
	}
	answer, err := m.messagesOf(answerKey)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", m.name(answerKey), err)
	}
	return append(said, answer...), nil
}
