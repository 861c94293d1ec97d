package chat

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/nikolalohinski/gonja/v2/exec"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // for example "system", "user", "assistant", "tool"
	Content string
	// Raw is the whole JSON object, if it has more than these two fields, such as tool calls;
	// otherwise nil. Templates see its fields in their order.
	Raw json.RawMessage
	// Skip says that this message of the assistant is not learned: its "weight" is 0.
	Skip bool
}

// ParseMessages reads a JSON array of messages: objects with a role, which is a text. The error is
// ErrMessages.
func ParseMessages(data []byte) ([]Message, error) { return parseMessages(data, parseMessage) }

// parseMessages reads a JSON array of messages, each with parse.
func parseMessages(data []byte, parse func(fields) (Message, error)) ([]Message, error) {
	if len(data) > MaxInputBytes {
		return nil, fmt.Errorf("%w: they have %d bytes; the limit is %d", ErrMessages, len(data), MaxInputBytes)
	}
	dec, err := strictjson.NewDecoder(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessages, err)
	}
	var messages []Message
	err = strictjson.Array(dec, func() error {
		if len(messages) == MaxMessages {
			return fmt.Errorf("there are more than %d messages", MaxMessages)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		all, err := readFields(raw)
		if err != nil {
			return fmt.Errorf("message %d: %w", len(messages)+1, err)
		}
		m, err := parse(all)
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
		err = fmt.Errorf("there are no messages")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMessages, err)
	}
	return messages, nil
}

func parseMessage(all fields) (m Message, err error) {
	further, hasRole := false, false
	kept := all[:0]
	for _, f := range all {
		switch null := string(f.value) == "null"; {
		case f.key == "role":
			hasRole = true
			if err := json.Unmarshal(f.value, &m.Role); err != nil || m.Role == "" {
				return m, fmt.Errorf("its role is %s: it must be a text such as \"user\"", strictjson.Quote(string(f.value)))
			}
		case f.key == "content" && !null && json.Unmarshal(f.value, &m.Content) == nil:
		case f.key == "content":
			further = true // templates distinguish null from missing content
		case null:
			continue // programs that store tables write null for a missing value
		case f.key == "weight":
			if m.Skip, err = skips(f.value); err != nil {
				return m, err
			}
			continue
		default:
			further = true
		}
		if f.value, err = withoutNulls(f.key, f.value); err != nil {
			return m, err
		}
		kept = append(kept, f)
	}
	if !hasRole {
		return m, fmt.Errorf("its role is missing")
	}
	if further {
		m.Raw = kept.object()
	}
	return m, nil
}

// skips reads a weight.
func skips(value json.RawMessage) (bool, error) {
	var weight float64
	if err := json.Unmarshal(value, &weight); err != nil || weight != 0 && weight != 1 {
		return false, fmt.Errorf("its weight is %s: it must be 1, or 0 for a message that is not learned", strictjson.Quote(string(value)))
	}
	return weight == 0, nil
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
			return nil, fmt.Errorf("the key %s occurs twice", strictjson.Quote(key))
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
