package serve

import (
	"encoding/json"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/chat"
)

// message is a message as chat templates expect it: its content is a text, and the arguments of calls are objects.
type message struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Reasoning  json.RawMessage `json:"reasoning_content,omitempty"`
	Name       json.RawMessage `json:"name,omitempty"`
	Calls      []toolCall      `json:"tool_calls,omitempty"`
	ToolCallID json.RawMessage `json:"tool_call_id,omitempty"`
}

// toolCall is a call of a function.
type toolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// messages reads a conversation.
func (q *request) messages(key string, v json.RawMessage) error {
	var list []map[string]json.RawMessage
	if json.Unmarshal(v, &list) != nil || len(list) == 0 {
		return bad(key, "messages must be a list of messages, and not an empty one")
	}
	if len(list) > chat.MaxMessages {
		return bad(key, "there are %d messages; the limit is %d", len(list), chat.MaxMessages)
	}
	all := make([]message, len(list))
	for i, members := range list {
		if err := all[i].read(members); err != nil {
			return bad(key, "message %d: %v", i+1, err)
		}
	}
	text, err := json.Marshal(all)
	if err == nil {
		q.o.Messages, err = chat.ParseMessages(text)
	}
	if err != nil {
		return bad(key, "%v", err)
	}
	return nil
}

func (m *message) read(members map[string]json.RawMessage) error {
	m.Content = json.RawMessage("null")
	for key, v := range members {
		null := string(v) == "null"
		var err error
		switch key {
		case "role":
			if err = text(&m.Role)(key, v); m.Role == "developer" { // the API's newer name
				m.Role = "system"
			}
		case "content":
			m.Content, err = contentOf(v)
		case "reasoning_content":
			m.Reasoning = v
		case "name":
			m.Name = v
		case "tool_call_id":
			m.ToolCallID = v
		case "tool_calls":
			if !null {
				err = m.readCalls(v)
			}
		case "refusal", "audio", "function_call", "annotations":
			if !null && string(v) != "[]" {
				err = bad(key, "%s is not supported", key)
			}
		default:
			err = bad(key, "unknown key %s", strictjson.Quote(key))
		}
		if err != nil {
			return err
		}
	}
	if string(m.Content) == "null" && m.Calls == nil {
		return bad("content", "its content is missing")
	}
	return nil
}

// contentOf reads a content: a text, or a list of parts that are texts, which are joined.
func contentOf(v json.RawMessage) (json.RawMessage, error) {
	var whole string
	if string(v) == "null" || json.Unmarshal(v, &whole) == nil {
		return v, nil
	}
	var parts []struct{ Type, Text string }
	if json.Unmarshal(v, &parts) != nil {
		return nil, bad("content", "its content must be a text, or a list of parts with the type text")
	}
	var all strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return nil, bad("content", "its content has a part with the type %s: only text is supported", strictjson.Quote(p.Type))
		}
		all.WriteString(p.Text)
	}
	return json.Marshal(all.String())
}

// readCalls reads calls whose arguments are JSON in a text.
func (m *message) readCalls(v json.RawMessage) error {
	if json.Unmarshal(v, &m.Calls) != nil {
		return bad("tool_calls", "its tool_calls must be a list of calls of functions")
	}
	for i := range m.Calls {
		c := &m.Calls[i]
		var inner string
		if json.Unmarshal(c.Function.Arguments, &inner) == nil {
			c.Function.Arguments = json.RawMessage(inner)
		}
		var object map[string]json.RawMessage
		if c.Function.Name == "" || json.Unmarshal(c.Function.Arguments, &object) != nil || object == nil {
			return bad("tool_calls", "call %d needs a function with a name, and with arguments that are a JSON object in a text", i+1)
		}
	}
	return nil
}

// functions reads the functions that an answer may call.
func (q *request) functions(key string, v json.RawMessage) error {
	var list []struct {
		Type     string
		Function *struct{ Name string }
	}
	if json.Unmarshal(v, &list) != nil || len(list) == 0 {
		return bad(key, "tools must be a list of functions, and not an empty one")
	}
	for i, one := range list {
		if one.Type != "function" || one.Function == nil || one.Function.Name == "" {
			return bad(key, "tool %d must have the type function, and a function with a name", i+1)
		}
	}
	q.o.Tools = v
	return nil
}

func (q *request) toolChoice(key string, v json.RawMessage) error {
	if json.Unmarshal(v, &q.choice) != nil || q.choice != "auto" && q.choice != "none" {
		return bad(key, "tool_choice = %s is not supported; use \"auto\" or \"none\"", strictjson.Show(v))
	}
	return nil
}

// templateVars reads variables of the chat template, such as enable_thinking.
func (q *request) templateVars(key string, v json.RawMessage) error {
	if json.Unmarshal(v, &q.o.TemplateVars) != nil {
		return bad(key, "chat_template_kwargs must be an object")
	}
	for name, v := range q.o.TemplateVars {
		switch v.(type) {
		case string, bool, float64:
		default:
			return bad(key, "chat_template_kwargs has %s, which must be a text, a number, true or false", strictjson.Quote(name))
		}
	}
	return nil
}
