package rundir

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/troupe-ml/troupe/internal/chat/builtin"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// maxTemplateBytes bounds the file of a chat template. Package chat has the same limit.
const maxTemplateBytes = 128 << 10

// Template is a chat template that the user has chosen in place of the model's own.
type Template struct{ text, source string }

// ChosenTemplate returns the template that a value of data.chat_template means: the name of a built-in one, or the path of
// a file. "" is no choice. where is the name of the key or flag, for people.
func ChosenTemplate(where, value string) (t Template, err error) {
	if value == "" {
		return t, nil
	}
	t.source = fmt.Sprintf("%s (%q)", where, value)
	if text, ok := builtin.Source(value); ok {
		t.text = text
		return t, nil
	}
	file, err := os.Open(value)
	if err != nil {
		return t, folder.Missing(err, "", "file", value)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	b, err := io.ReadAll(io.LimitReader(file, maxTemplateBytes+1))
	switch {
	case err != nil:
		return t, err
	case len(b) > maxTemplateBytes:
		return t, fmt.Errorf("%s has more than the limit of %d bytes of a chat template", value, maxTemplateBytes)
	case len(b) == 0:
		return t, fmt.Errorf("%s is empty; a chat template is a Jinja template", value)
	}
	t.text = string(b)
	return t, nil
}

// FittingTemplate returns the name of a built-in chat template for a tokenizer: one that ends answers with a token that the tokenizer has,
// else the one that ends them with its eos_token.
func FittingTemplate(tok tokenizer.Tokenizer) string {
	for _, t := range []struct{ end, name string }{
		{"<|im_end|>", "chatml"}, {"<|eot_id|>", "llama3"}, {"<end_of_turn>", "gemma"}, {"<|end|>", "phi3"},
	} {
		if tok == nil {
			break
		}
		if _, ok := tok.TokenID(t.end); ok {
			return t.name
		}
	}
	return "zephyr"
}

// chosen reports whether there is a choice.
func (t Template) chosen() bool { return t.text != "" }

// Keep returns the files with the template as their chat_template.jinja.
func (t Template) Keep(k Kept) Kept {
	if !t.chosen() {
		return k
	}
	texts := make(map[string][]byte, len(k.Texts)+1)
	maps.Copy(texts, k.Texts)
	texts[TemplateFile] = []byte(t.text)
	return Kept{Texts: texts, Model: k.Model}
}

// Talk returns what the files say about texts, with the template.
func (t Template) Talk(talk Talk) Talk {
	if t.chosen() {
		talk.Template, talk.Sources.Template, talk.Chosen = t.text, t.source, true
	}
	return talk
}
