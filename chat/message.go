package chat

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nikolalohinski/gonja/v2/exec"

	"github.com/troupe-ml/troupe/internal/strictjson"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // such as "system", "user", "assistant", "tool"
	Content string
	// Raw is the whole JSON object, where it has more than these two, such as tool calls; nil: it
	// has not. Templates see what is in it, in its order.
	Raw json.RawMessage
}

// ParseMessages reads a JSON array of messages: objects with a role, a text.
func ParseMessages(data []byte) ([]Message, error) {
	if len(data) > MaxInputBytes {
		return nil, fmt.Errorf("%w: they have %d bytes, more than %d", ErrMessages, len(data), MaxInputBytes)
	}
	dec, err := strictjson.NewDecoder(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessages, err)
	}
	var messages []Message
	err = strictjson.Array(dec, func() error {
		if len(messages) == MaxMessages {
			return fmt.Errorf("there are more than %d", MaxMessages)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		m, err := parseMessage(raw)
		if err != nil {
			return fmt.Errorf("message %d: %w", len(messages)+1, err)
		}
		messages = append(messages, m)
		return nil
	})
	if err == nil {
		err = strictjson.End(dec)
	}
	if err == nil && len(messages) == 0 {
		err = fmt.Errorf("there are none")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessages, err)
	}
	return messages, nil
}

func parseMessage(raw json.RawMessage) (m Message, err error) {
	dec, err := strictjson.NewDecoder(raw)
	if err != nil {
		return m, err
	}
	further, hasRole := false, false
	err = strictjson.Object(dec, func(key string) (err error) {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return err
		}
		switch {
		case key == "role":
			hasRole = true
			if err := json.Unmarshal(v, &m.Role); err != nil || m.Role == "" {
				return fmt.Errorf("its role is %s, it must be a text such as \"user\"", strictjson.Quote(string(v)))
			}
		case key == "content" && json.Unmarshal(v, &m.Content) == nil && string(v) != "null":
		default:
			further = true
		}
		return nil
	})
	if err == nil && !hasRole {
		err = fmt.Errorf("it has no role")
	}
	if further {
		m.Raw = raw
	}
	return m, err
}

// value is what templates see.
func (m Message) value() (any, error) {
	if m.Raw == nil {
		return dict("role", m.Role, "content", m.Content), nil
	}
	return fromJSON(m.Raw)
}

func dict(pairs ...any) *exec.Dict {
	d := exec.NewDict()
	for i := 0; i < len(pairs); i += 2 {
		d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(pairs[i]), Value: exec.AsValue(pairs[i+1])})
	}
	return d
}

// fromJSON is a value with the members of objects in their order.
func fromJSON(data json.RawMessage) (any, error) {
	dec, err := strictjson.NewDecoder(data)
	if err != nil {
		return nil, err
	}
	return next(dec)
}

// next reads the value at which a decoder stands. Its depth is limited by encoding/json.
func next(dec *json.Decoder) (any, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case nil:
		return null, nil
	case json.Number:
		if n, err := strconv.Atoi(t.String()); err == nil {
			return n, nil
		}
		return t.Float64()
	case json.Delim:
		if t == '[' {
			return nextList(dec)
		}
		return nextDict(dec)
	}
	return token, nil
}

func nextList(dec *json.Decoder) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := next(dec)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token() // the bracket
	return list, err
}

func nextDict(dec *json.Decoder) (any, error) {
	d := exec.NewDict()
	seen := make(map[string]bool)
	for dec.More() {
		key, err := strictjson.String(dec)
		if err != nil {
			return nil, err
		}
		if seen[key] {
			return nil, fmt.Errorf("the key %s appears twice", strictjson.Quote(key))
		}
		seen[key] = true
		v, err := next(dec)
		if err != nil {
			return nil, err
		}
		d.Pairs = append(d.Pairs, &exec.Pair{Key: exec.AsValue(key), Value: exec.AsValue(v)})
	}
	_, err := dec.Token() // the brace
	return d, err
}
