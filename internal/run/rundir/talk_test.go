package rundir_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
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
		"nothing":     {files{}, nil, "", "", ""},
		"config.json": {files{"config.json": `{"eos_token_id": 2}`}, []int32{2}, "", "", ""},
		"null":        {files{"config.json": `{"eos_token_id": null}`}, nil, "", "", ""},
		"generation_config": {files{"config.json": `{"eos_token_id": 2}`, "generation_config.json": `{"eos_token_id": [3, 4]}`},
			[]int32{3, 4}, "", "", ""},
		"template": {files{"tokenizer_config.json": `{"chat_template": "a", "bos_token": {"content": "<s>", "lstrip": false}}`}, nil,
			"a", "<s>", ""},
		"template in a file": {files{"tokenizer_config.json": `{"chat_template": "a", "bos_token": "<b>"}`, "chat_template.jinja": "b"}, nil,
			"b", "<b>", ""},
		"several templates": {files{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "y"}], "bos_token": null}`}, nil, "y", "", ""},
		"none called default": {files{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "x"}]}`}, nil, "", "",
			"but none with the name"},
		"a negative id":         {files{"config.json": `{"eos_token_id": -1}`}, nil, "", "", "0 or more"},
		"a text for an id":      {files{"config.json": `{"eos_token_id": "x"}`}, nil, "", "", "must be an id"},
		"no JSON":               {files{"generation_config.json": `{`}, nil, "", "", "generation_config.json"},
		"a number for template": {files{"tokenizer_config.json": `{"chat_template": 3}`}, nil, "", "", "must be a string or a list"},
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

// special is a tokenizer of bytes with special tokens, ids from 256 on, of which some are put around a text.
func special(t *testing.T, single string, names ...string) tokenizer.Tokenizer {
	t.Helper()
	own, err := tokenizer.Marshal(tokenizer.Bytes{})
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(own, &file); err != nil {
		t.Fatal(err)
	}
	var added []any
	ids := make(map[string]any)
	for i, name := range names {
		added = append(added, map[string]any{"id": 256 + i, "content": name, "special": true, "normalized": false, "lstrip": false,
			"rstrip": false, "single_word": false})
		ids[name] = map[string]any{"id": name, "ids": []int{256 + i}, "tokens": []string{name}}
	}
	var parts []any
	for _, part := range strings.Fields(single) {
		kind := "SpecialToken"
		if part == "A" {
			kind = "Sequence"
		}
		parts = append(parts, map[string]any{kind: map[string]any{"id": part, "type_id": 0}})
	}
	file["added_tokens"] = added
	if parts != nil {
		file["post_processor"] = map[string]any{"type": "TemplateProcessing", "single": parts, "pair": parts, "special_tokens": ids}
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Unmarshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// TestTalkOfSeveralFiles: what begins and ends a text is found in whatever file says it, and where files contradict each
// other that is said.
func TestTalkOfSeveralFiles(t *testing.T) {
	const s, e, im = 256, 257, 258
	for name, c := range map[string]struct {
		single                   string
		files                    files
		ends, end, before, after []int32
		bos                      string
		warnings                 []string
	}{
		"one file": {"", files{"tokenizer_config.json": `{"eos_token": "</s>", "bos_token": "<s>"}`,
			"generation_config.json": `{"eos_token_id": 257}`}, []int32{e}, []int32{e}, nil, nil, "<s>", nil},
		"the tokenizer's alone": {"", files{"tokenizer_config.json": `{"eos_token": "</s>"}`}, []int32{e}, []int32{e}, nil, nil, "", nil},
		"the map alone": {"", files{"tokenizer_config.json": `{}`,
			"special_tokens_map.json": `{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "additional_special_tokens": ["x"]}`}, []int32{e},
			[]int32{e}, nil, nil, "<s>", nil},
		"the map says otherwise": {"", files{"tokenizer_config.json": `{"eos_token": "<e>", "bos_token": "<s>"}`,
			"special_tokens_map.json": `{"eos_token": "</s>"}`}, []int32{e}, []int32{e}, nil, nil, "<s>",
			[]string{`eos_token is "</s>" in special_tokens_map.json but "<e>" in tokenizer_config.json; the first is used`}},
		"the map is not read": {"", files{"tokenizer_config.json": `{"eos_token": "</s>", "added_tokens_decoder": {}}`,
			"special_tokens_map.json": `{"bos_token": "<s>", "eos_token": {"content": "<e>"}, "pad_token": null}`}, []int32{e}, []int32{e}, nil, nil,
			"",
			[]string{`bos_token is "<s>" in special_tokens_map.json, but tokenizer_config.json has added_tokens_decoder`,
				`eos_token is "</s>" in tokenizer_config.json, which has added_tokens_decoder, but "<e>" in special_tokens_map.json; the first is used`}},
		"null in the map": {"", files{"tokenizer_config.json": `{"eos_token": "</s>"}`, "special_tokens_map.json": `{"eos_token": null}`},
			[]int32{e}, []int32{e}, nil, nil, "", nil},
		"two ends": {"", files{"tokenizer_config.json": `{"eos_token": "</s>"}`, "generation_config.json": `{"eos_token_id": 258}`},
			[]int32{im, e}, []int32{e}, nil, nil, "",
			[]string{`eos_token is "</s>" (id 257) in the tokenizer's files, but eos_token_id in generation_config.json is 258 ("<im>")`}},
		"several ends": {"", files{"tokenizer_config.json": `{"eos_token": "</s>"}`, "generation_config.json": `{"eos_token_id": [258, 257]}`,
			"config.json": `{"eos_token_id": 258}`}, []int32{im, e}, []int32{e}, nil, nil, "", nil},
		"config.json says otherwise": {"", files{"generation_config.json": `{"eos_token_id": [258]}`,
			"config.json": `{"eos_token_id": [256, 258]}`}, []int32{im}, []int32{im}, nil, nil, "",
			[]string{`eos_token_id in config.json is 256 ("<s>"), but generation_config.json has 258 ("<im>")`}},
		"an unknown end": {"", files{"tokenizer_config.json": `{"eos_token": "<e>"}`}, nil, nil, nil, nil, "",
			[]string{`eos_token is "<e>", but the tokenizer.json tokenizer has no such token`}},
		"around a text": {"<s> A </s>", files{"tokenizer_config.json": `{"add_bos_token": true, "add_eos_token": true}`}, nil, nil, []int32{s},
			[]int32{e}, "", nil},
		"the end before": {"</s> A", files{"tokenizer_config.json": `{"eos_token": "</s>", "bos_token": "</s>", "add_bos_token": true}`},
			[]int32{e}, []int32{e}, []int32{e}, nil, "</s>", nil},
		"not what is said": {"<s> <im> A", files{"tokenizer_config.json": `{"add_bos_token": false, "add_eos_token": true}`}, nil, nil,
			[]int32{s, im}, nil, "",
			[]string{"add_bos_token is false", "add_eos_token is true"}},
	} {
		tok := special(t, c.single, "<s>", "</s>", "<im>")
		got, err := rundir.ReadTalk(c.files, tok)
		if err != nil || !slices.Equal(got.Ends, c.ends) || !slices.Equal(got.End, c.end) || !slices.Equal(got.Before, c.before) ||
			!slices.Equal(got.After, c.after) || got.Special["bos_token"] != c.bos {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if len(got.Warnings) != len(c.warnings) {
			t.Errorf("%s: %q, want %q", name, got.Warnings, c.warnings)
			continue
		}
		for i, want := range c.warnings {
			if !strings.Contains(got.Warnings[i], want) {
				t.Errorf("%s: %q doesn't say %q", name, got.Warnings[i], want)
			}
		}
	}
}

// TestDescribe: each fact is said with the files that it is from.
func TestDescribe(t *testing.T) {
	tok := special(t, "<s> A", "<s>", "</s>", "<im>")
	for want, f := range map[string]files{
		`a text starts with 256 ("<s>"), from tokenizer.json`: {},
		`a text starts with 256 ("<s>"), from tokenizer.json; a document ends with 257 ("</s>"), from tokenizer_config.json; generation stops at 258 ("<im>"), 257 ("</s>"), from generation_config.json and tokenizer_config.json; the chat template is from chat_template.jinja`: {
			"tokenizer_config.json": `{"eos_token": "</s>"}`, "generation_config.json": `{"eos_token_id": 258}`, "chat_template.jinja": "x"},
		`a text starts with 256 ("<s>"), from tokenizer.json; a document ends with 257 ("</s>"), from special_tokens_map.json; generation stops at 257 ("</s>"), from special_tokens_map.json; the chat template is from tokenizer_config.json`: {
			"special_tokens_map.json": `{"eos_token": "</s>"}`, "tokenizer_config.json": `{"chat_template": "x"}`},
		`a text starts with 256 ("<s>"), from tokenizer.json; a document ends with 258 ("<im>"), from config.json; generation stops at 258 ("<im>"), from config.json`: {
			"config.json": `{"eos_token_id": 258}`},
	} {
		talk, err := rundir.ReadTalk(f, tok)
		if err != nil {
			t.Fatal(err)
		}
		if got := talk.Describe(tok); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestWithEnds: all else of a generation_config.json stays, and one that is new has what config.json says.
func TestWithEnds(t *testing.T) {
	for name, c := range map[string]struct {
		files files
		want  string
	}{
		"there": {files{"generation_config.json": `{"eos_token_id": 1, "top_p": 0.5}`}, `{"eos_token_id":[1,2],"top_p":0.5}`},
		"new": {files{"config.json": `{"eos_token_id": 1, "bos_token_id": 7, "pad_token_id": null}`},
			`{"bos_token_id":7,"eos_token_id":[1,2]}`},
	} {
		got, err := rundir.WithEnds(c.files, []int32{1, 2})
		var short bytes.Buffer
		if err == nil {
			err = json.Compact(&short, got)
		}
		if err != nil || short.String() != c.want {
			t.Errorf("%s: %s, want %s, %v", name, got, c.want, err)
		}
	}
}
