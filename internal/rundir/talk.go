package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/strictjson"
)

// Files of a Hugging Face directory that say how a model reads and writes text, besides its
// tokenizer.json.
const (
	GenerationFile      = "generation_config.json"
	TokenizerConfigFile = "tokenizer_config.json"
	TemplateFile        = "chat_template.jinja"
)

// Talk is what a model's directory says of its text.
type Talk struct {
	// Ends are the ids that end a text: eos_token_id of generation_config.json, else of config.json.
	Ends []int32
	// Template is the chat template; "": there is none.
	Template string
	// Special are the texts of special tokens by the names that templates know, such as "bos_token".
	Special map[string]string
}

// Files are those of a checkpoint, or of any directory of a model.
type Files interface {
	File(name string) ([]byte, error)
}

// ReadTalk reads it. A file that is not there says nothing.
func ReadTalk(c Files) (t Talk, err error) {
	for _, name := range []string{GenerationFile, ModelFile} {
		members, err := readObject(c, name)
		if err != nil {
			return t, err
		}
		if t.Ends, err = idsOf(members["eos_token_id"]); err != nil {
			return t, fmt.Errorf("%s: eos_token_id is %w", name, err)
		}
		if len(t.Ends) > 0 {
			break
		}
	}
	settings, err := readObject(c, TokenizerConfigFile)
	if err != nil {
		return t, err
	}
	t.Special = make(map[string]string)
	for name, v := range settings {
		if text, ok := tokenText(v); ok && strings.HasSuffix(name, "_token") {
			t.Special[name] = text
		}
	}
	b, err := c.File(TemplateFile)
	switch {
	case err == nil:
		t.Template = string(b)
	case errors.Is(err, fs.ErrNotExist):
		if t.Template, err = templateOf(settings["chat_template"]); err != nil {
			return t, fmt.Errorf("%s: %w", TokenizerConfigFile, err)
		}
	default:
		return t, err
	}
	return t, nil
}

// readObject reads a file's members; none where there is no such file.
func readObject(c Files, name string) (map[string]json.RawMessage, error) {
	b, err := c.File(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dec, err := strictjson.NewDecoder(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	members := make(map[string]json.RawMessage)
	err = strictjson.Object(dec, func(key string) error {
		var v json.RawMessage
		err := dec.Decode(&v)
		members[key] = v
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return members, nil
}

// idsOf reads an id, or a list of them.
func idsOf(v json.RawMessage) ([]int32, error) {
	if len(v) == 0 || string(v) == "null" {
		return nil, nil
	}
	var ids []int32
	var one int32
	if json.Unmarshal(v, &one) == nil {
		ids = []int32{one}
	} else if json.Unmarshal(v, &ids) != nil {
		return nil, fmt.Errorf("%s, it must be an id or a list of ids", strictjson.Quote(string(v)))
	}
	if slices.ContainsFunc(ids, func(id int32) bool { return id < 0 }) {
		return nil, fmt.Errorf("%s, and ids are 0 or more", strictjson.Quote(string(v)))
	}
	return ids, nil
}

// tokenText is the text of a special token: as it is, or in an object.
func tokenText(v json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(v, &text) == nil && string(v) != "null" {
		return text, true
	}
	var token struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(v, &token) == nil && token.Content != nil {
		return *token.Content, true
	}
	return "", false
}

// templateOf is the chat template among the settings of a tokenizer: a text, or the one of several
// that is called "default".
func templateOf(v json.RawMessage) (string, error) {
	if len(v) == 0 || string(v) == "null" {
		return "", nil
	}
	var text string
	if json.Unmarshal(v, &text) == nil {
		return text, nil
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(v, &named) != nil {
		return "", errors.New("chat_template is neither a text nor a list of named ones")
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", fmt.Errorf("chat_template has %d templates, and none is called \"default\"", len(named))
}
