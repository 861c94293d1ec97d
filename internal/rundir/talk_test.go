package rundir_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/rundir"
)

type files map[string]string

func (f files) File(name string) ([]byte, error) {
	text, ok := f[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

func TestReadTalk(t *testing.T) {
	for name, c := range map[string]struct {
		files    files
		ends     []int32
		template string
		bos      string
		err      string
	}{
		"nothing":               {files{}, nil, "", "", ""},
		"config.json":           {files{"config.json": `{"eos_token_id": 2}`}, []int32{2}, "", "", ""},
		"null":                  {files{"config.json": `{"eos_token_id": null}`}, nil, "", "", ""},
		"generation_config":     {files{"config.json": `{"eos_token_id": 2}`, "generation_config.json": `{"eos_token_id": [3, 4]}`}, []int32{3, 4}, "", "", ""},
		"template":              {files{"tokenizer_config.json": `{"chat_template": "a", "bos_token": {"content": "<s>", "lstrip": false}}`}, nil, "a", "<s>", ""},
		"template in a file":    {files{"tokenizer_config.json": `{"chat_template": "a", "bos_token": "<b>"}`, "chat_template.jinja": "b"}, nil, "b", "<b>", ""},
		"several templates":     {files{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}], "bos_token": null}`}, nil, "y", "", ""},
		"none called default":   {files{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "x"}]}`}, nil, "", "", "none is called"},
		"a negative id":         {files{"config.json": `{"eos_token_id": -1}`}, nil, "", "", "0 or more"},
		"a text for an id":      {files{"config.json": `{"eos_token_id": "x"}`}, nil, "", "", "must be an id"},
		"no JSON":               {files{"generation_config.json": `{`}, nil, "", "", "generation_config.json"},
		"a number for template": {files{"tokenizer_config.json": `{"chat_template": 3}`}, nil, "", "", "neither"},
	} {
		got, err := rundir.ReadTalk(c.files, nil)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v doesn't say %q", name, err, c.err)
			}
			continue
		}
		if err != nil || !slices.Equal(got.Ends, c.ends) || got.Template != c.template || got.Special["bos_token"] != c.bos {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
