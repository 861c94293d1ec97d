package rundir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// Files of a Hugging Face directory that describe how a model reads and writes text, besides its
// tokenizer.json.
const (
	GenerationFile      = "generation_config.json"
	TokenizerConfigFile = "tokenizer_config.json"
	TemplateFile        = "chat_template.jinja"
)

// specialMapFile has special tokens, too. In older directories it is the only file with them.
const specialMapFile = "special_tokens_map.json"

// Talk is what a model's directory says about texts: which tokens start and end
// them, and the chat template. Training, evaluation, generation and export all use it.
type Talk struct {
	// Ends are the ids that end a text: eos_token_id of generation_config.json, else of config.json,
	// and the tokenizer's eos_token.
	Ends []int32
	// End is the id that ends a document: the tokenizer's eos_token, else the first of Ends. It is empty if there is
	// none.
	End []int32
	// Before are the ids that the tokenizer adds before a text, such as the token that starts it. After are those that
	// it adds after a text.
	Before, After []int32
	// Template is the chat template; "": none. Chosen: it is not the model's own, see ChosenTemplate.
	Template string
	Chosen   bool
	// Special has the texts of special tokens by their names in templates, such as "bos_token".
	Special map[string]string
	origin  map[string]string // their files
	// Sources are the files of Ends, End, Before, After and Template; "": none.
	Sources Sources
	// Warnings describe where the files contradict each other, and which value is used.
	Warnings []string
}

// Sources are the files from which a Talk was read.
type Sources struct{ Ends, End, Around, Template string }

// Files reads the files of a checkpoint, or of a model's directory.
type Files interface {
	File(name string) ([]byte, error)
}

// ReadTalk reads a Talk from files, of which any may be missing. tok may be nil if it is not known.
func ReadTalk(c Files, tok tokenizer.Tokenizer) (t Talk, err error) {
	settings, err := readObject(c, TokenizerConfigFile)
	if err != nil {
		return t, err
	}
	if err := t.readSpecial(c, settings); err != nil {
		return t, err
	}
	if t.Template, t.Sources.Template, err = readTemplate(c, settings); err != nil {
		return t, err
	}
	if err := t.readEnds(c, tok); err != nil {
		return t, err
	}
	if tok != nil {
		if t.Before, t.After = tok.Around(); len(t.Before)+len(t.After) > 0 {
			t.Sources.Around = TokensFile
		}
		t.checkAdded(settings)
	}
	return t, nil
}

// readSpecial reads the names of special tokens, as transformers does: those of special_tokens_map.json have priority over
// those of tokenizer_config.json. If tokenizer_config.json has added_tokens_decoder, the map is ignored.
func (t *Talk) readSpecial(c Files, settings map[string]json.RawMessage) error {
	older, err := readObject(c, specialMapFile)
	if err != nil {
		return err
	}
	t.Special, t.origin = make(map[string]string), make(map[string]string)
	further := make(map[string]json.RawMessage) // with names of the model's own
	_ = json.Unmarshal(settings["extra_special_tokens"], &further)
	take := func(members map[string]json.RawMessage, file string) {
		for name, v := range members {
			if text, ok := tokenText(v); ok && strings.HasSuffix(name, "_token") {
				t.Special[name], t.origin[name] = text, file
			}
		}
	}
	take(further, TokenizerConfigFile)
	take(settings, TokenizerConfigFile)
	_, complete := settings["added_tokens_decoder"]
	for _, name := range slices.Sorted(maps.Keys(older)) {
		text, ok := tokenText(older[name])
		own := t.Special[name]
		if !ok || !strings.HasSuffix(name, "_token") || own == text {
			continue
		}
		switch {
		case complete && own == "":
			t.warn("%s is %q in %[3]s, but %[4]s has added_tokens_decoder, so %[3]s is ignored, as in transformers; set %[1]s in %[4]s", name, text,
				specialMapFile, TokenizerConfigFile)
		case complete:
			t.warn("%s is %q in %s, which has added_tokens_decoder, but %q in %s; the first is used, as in transformers", name, own,
				TokenizerConfigFile, text, specialMapFile)
		case own != "":
			t.warn("%s is %q in %s but %q in %s; the first is used, as in transformers", name, text, specialMapFile, own, TokenizerConfigFile)
		}
	}
	if !complete {
		take(older, specialMapFile)
	}
	return nil
}

func (t *Talk) warn(format string, args ...any) {
	t.Warnings = append(t.Warnings, fmt.Sprintf(format, args...))
}

// readEnds reads the tokens that end a text.
func (t *Talk) readEnds(c Files, tok tokenizer.Tokenizer) error {
	ids := make(map[string][]int32) // by file
	for _, name := range []string{GenerationFile, ModelFile} {
		members, err := readObject(c, name)
		if err != nil {
			return err
		}
		if ids[name], err = idsOf(members["eos_token_id"]); err != nil {
			return fmt.Errorf("%s: eos_token_id is %w", name, err)
		}
	}
	source := GenerationFile
	if len(ids[source]) == 0 {
		source = ModelFile
	}
	t.Ends = slices.Clone(ids[source])
	t.End = slices.Clone(t.Ends[:min(1, len(t.Ends))])
	if len(t.Ends) > 0 {
		t.Sources.Ends, t.Sources.End = source, source
	}
	if own, ok := t.ownEnd(tok); ok {
		t.End, t.Sources.End = []int32{own}, t.origin["eos_token"]
		if !slices.Contains(t.Ends, own) {
			if len(t.Ends) > 0 {
				t.warn("eos_token is %q (id %d) in the tokenizer's files, but eos_token_id in %s is %s: documents end with the first; generation stops at any of them", t.Special["eos_token"], own, source, named(tok, t.Ends))
			}
			t.Ends = append(t.Ends, own)
			if t.Sources.Ends != "" {
				t.Sources.Ends += " and "
			}
			t.Sources.Ends += t.Sources.End
		}
	}
	var ignored []int32
	for _, id := range ids[ModelFile] {
		if !slices.Contains(t.Ends, id) {
			ignored = append(ignored, id)
		}
	}
	if len(ignored) > 0 {
		t.warn("eos_token_id in %s is %s, but %s has %s; only the second is used", ModelFile, named(tok, ignored), source,
			named(tok, ids[source]))
	}
	return nil
}

// GenerationEnds returns the ids at which other programs stop generation: eos_token_id of
// generation_config.json, else of config.json.
func GenerationEnds(c Files) (ids []int32, err error) {
	for _, name := range []string{GenerationFile, ModelFile} {
		members, err := readObject(c, name)
		if err == nil {
			ids, err = idsOf(members["eos_token_id"])
		}
		if err != nil || len(ids) > 0 {
			return ids, err
		}
	}
	return nil, nil
}

// SpecialIDs returns the ids of special tokens that config.json names, such as "bos" for bos_token_id.
func SpecialIDs(c Files) (ids map[string]int32, err error) {
	members, err := readObject(c, ModelFile)
	if err != nil {
		return nil, err
	}
	ids = make(map[string]int32)
	for _, name := range []string{"bos", "eos", "unk", "sep", "pad", "cls", "mask"} {
		var id int32
		if v := members[name+"_token_id"]; len(v) > 0 && string(v) != "null" && json.Unmarshal(v, &id) == nil && id >= 0 {
			ids[name] = id
		}
	}
	return ids, nil
}

// WithEnds returns the generation_config.json with ids as eos_token_id and everything else unchanged. If there is none yet,
// it has the values that other programs would take from config.json.
func WithEnds(c Files, ids []int32) ([]byte, error) {
	members, err := readObject(c, GenerationFile)
	if err != nil {
		return nil, err
	}
	if members == nil {
		model, err := readObject(c, ModelFile)
		if err != nil {
			return nil, err
		}
		members = make(map[string]json.RawMessage)
		for _, name := range []string{"bos_token_id", "pad_token_id"} {
			if v := model[name]; len(v) > 0 && string(v) != "null" {
				members[name] = v
			}
		}
	}
	if members["eos_token_id"], err = json.Marshal(ids); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(members, "", "  ")
	return append(text, '\n'), err
}

// checkAdded warns if tokenizer_config.json contradicts the tokens that
// tokenizer.json adds to a text.
func (t *Talk) checkAdded(settings map[string]json.RawMessage) {
	for _, at := range []struct {
		key, where string
		ids        []int32
	}{{"add_bos_token", "before", t.Before}, {"add_eos_token", "after", t.After}} {
		var says bool
		if v := settings[at.key]; len(v) == 0 || json.Unmarshal(v, &says) != nil || string(v) == "null" || says == (len(at.ids) > 0) {
			continue
		}
		t.warn("%s is %t in %s, but the post-processor of %s adds %d tokens %s a text; %[4]s is used", at.key, says, TokenizerConfigFile,
			TokensFile, len(at.ids), at.where)
	}
}

// ownEnd returns the id of the tokenizer's eos_token.
func (t *Talk) ownEnd(tok tokenizer.Tokenizer) (int32, bool) {
	name := t.Special["eos_token"]
	if name == "" || tok == nil {
		return 0, false
	}
	id, ok := tok.TokenID(name)
	if !ok {
		t.warn("eos_token is %q, but the %s tokenizer has no such token", name, tok.Name())
	}
	return id, ok
}

// Describe returns a line with the tokens that start and end texts, the chat template, and their files; "":
// none.
func (t *Talk) Describe(tok tokenizer.Tokenizer) string {
	var all []string
	add := func(what string, ids []int32, source string) {
		if len(ids) > 0 {
			all = append(all, fmt.Sprintf("%s %s, from %s", what, named(tok, ids), source))
		}
	}
	add("a text starts with", t.Before, t.Sources.Around)
	add("a text is followed by", t.After, t.Sources.Around)
	add("a document ends with", t.End, t.Sources.End)
	add("generation stops at", t.Ends, t.Sources.Ends)
	if t.Template != "" {
		all = append(all, "the chat template is from "+t.Sources.Template)
	}
	return strings.Join(all, "; ")
}

// named lists ids with the names of their tokens.
func named(tok tokenizer.Tokenizer, ids []int32) string {
	var all []string
	for _, id := range ids {
		text := strconv.Itoa(int(id))
		if tok != nil {
			if name, ok := tok.Token(id); ok {
				text += fmt.Sprintf(" (%q)", name)
			}
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// readTemplate returns the chat template and its file: its own file, else the tokenizer's settings.
func readTemplate(c Files, settings map[string]json.RawMessage) (text, source string, err error) {
	b, err := c.File(TemplateFile)
	switch {
	case err == nil:
		return string(b), TemplateFile, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", "", err
	}
	if text, err = templateOf(settings["chat_template"]); err != nil {
		return "", "", fmt.Errorf("%s: %w", TokenizerConfigFile, err)
	}
	return text, TokenizerConfigFile, nil
}

// readObject reads the members of a file's object; none if there is no such file.
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
		return nil, fmt.Errorf("%s, but must be an id or a list of ids", strictjson.Quote(string(v)))
	}
	if slices.ContainsFunc(ids, func(id int32) bool { return id < 0 }) {
		return nil, fmt.Errorf("%s, but ids are 0 or more", strictjson.Quote(string(v)))
	}
	return ids, nil
}

// tokenText returns the text of a special token: a string, or the content of an object.
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

// templateOf returns the chat template in the settings of a tokenizer: a string, or the one of several
// with the name "default".
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
		return "", errors.New("chat_template must be a string or a list of named templates")
	}
	for _, n := range named {
		if n.Name == "default" {
			return n.Template, nil
		}
	}
	return "", fmt.Errorf("chat_template has %d templates, but none with the name \"default\"", len(named))
}
