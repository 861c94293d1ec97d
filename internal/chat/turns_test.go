package chat

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func template(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata/templates", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// turnsOf are the texts of a conversation's turns, with ¦ where the content ends.
func turnsOf(t *testing.T, source, messages string) []string {
	t.Helper()
	all, err := ParseMessages([]byte(messages))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Special: map[string]string{"bos_token": "<s>", "eos_token": "</s>"}}
	tmpl := parse(t, source)
	text, turns, err := tmpl.Turns(all, o)
	if err != nil {
		t.Fatal(err)
	}
	if rendered, err := tmpl.Render(all, o); err != nil || rendered != text {
		t.Errorf("%q, rendered %q, %v", text, rendered, err)
	}
	said := []string{}
	for _, turn := range turns {
		if turn.Said < 0 {
			said = append(said, text[turn.From:turn.To])
		} else {
			said = append(said, text[turn.From:turn.Said]+"¦"+text[turn.Said:turn.To])
		}
	}
	return said
}

const (
	chatML = `{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`
	colon  = `{% for m in messages %}{% if m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}{% else %}{{ 'ASSISTANT: ' + m.content + eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}`
	bare   = `{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}`
	last   = `{% for m in messages %}{{ '<' + m.role + '>' + m.content + ('</s>' if loop.last else '') }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	silent = `{% for m in messages %}{% if m.role == 'user' %}{{ '[I]' + m.content + '[/I]' }}{% else %}{{ ' ' + m.content + ' ' + eos_token }}{% endif %}{% endfor %}`
	// The generation prompt begins a thought, which answers have in the last turn alone.
	thinks = `{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.role == 'assistant' and not loop.last %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}{% endif %}{{ '<end>' }}{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}`
	calls  = `{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ m.content if m.content is string else '' }}{% for c in m.tool_calls %}{{ '<call>' + c.function.name + (c.function.arguments | tojson) + '</call>' }}{% endfor %}{{ '<end>\n' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	parts  = `{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text if p.type == 'text' else '<image>' }}{% endfor %}{% endif %}{{ '<end>\n' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	named  = `{% for m in messages %}{{ '<' + m.role + (' ' + m.name if m.name is defined else '') + '>' + m.content + '<end>' }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
)

func TestTurns(t *testing.T) {
	const (
		ask  = `{"role":"user","content":"q"}`
		talk = `[{"role":"system","content":"s"},` + ask + `,{"role":"assistant","content":" é "},` + ask +
			`,{"role":"assistant","content":"q"}]`
		think = `[` + ask + `,{"role":"assistant","content":"<think>a</think>b"},` + ask + `,{"role":"assistant","content":"<think>c</think>d"}]`
		call  = `[` + ask +
			`,{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"x":"y"}}}]},{"role":"tool","content":"4"},{"role":"assistant","content":"r"}]`
	)
	for name, c := range map[string]struct {
		template, messages string
		want               []string
	}{
		"trimmed": {template(t, "plain.jinja"), talk, []string{"é¦<|end|>\n", "q¦<|end|>\n"}},
		"empty": {template(t, "plain.jinja"), `[` + ask + `,{"role":"assistant","content":""}]`,
			[]string{"¦<|end|>\n"}},
		"no answer":        {template(t, "plain.jinja"), `[` + ask + `]`, []string{}},
		"the answer first": {chatML, `[{"role":"assistant","content":"a"},` + ask + `]`, []string{"a¦<|im_end|>\n"}},
		"generation": {template(t, "strict.jinja"), `[` + ask + `,{"role":"assistant","content":" é "},` + ask +
			`,{"role":"assistant","content":"q"}]`, []string{" é</s>", " q</s>"}},
		"a space before": {colon, `[` + ask + `,{"role":"assistant","content":"a b"}]`, []string{" a b¦</s>"}},
		"no generation prompt": {silent, `[` + ask + `,{"role":"assistant","content":"a"},` + ask +
			`,{"role":"assistant","content":"b"}]`, []string{" a¦ </s>", " b¦ </s>"}},
		"no end": {bare, `[` + ask + `,{"role":"assistant","content":"a"},` + ask +
			`,{"role":"assistant","content":"a"}]`, []string{"a¦\n", "a¦\n"}},
		"an end at the end": {last, `[` + ask + `,{"role":"assistant","content":"a"},` + ask +
			`,{"role":"assistant","content":"b"}]`, []string{"a¦<", "b¦</s>"}},
		"thoughts of the last": {thinks, think, []string{"b¦<end>", "c</think>d¦<end>"}},
		"thoughts, with ours": {template(t, "tools.jinja"), strings.ReplaceAll(think, `</think>`, `\n</think>\n\n`),
			[]string{" b¦\n", "<think>c</think>A: d¦\n"}},
		"calls": {calls, call, []string{`<call>f{"x": "y"}</call><end>` + "\n", "r¦<end>\n"}},
		"calls, with a thought asked for": {strings.Replace(calls, "<assistant>", "<assistant><think>", 1), call,
			[]string{`<call>f{"x": "y"}</call><end>` + "\n", "r¦<end>\n"}},
		"reasons": {calls, `[` + ask + `,{"role":"assistant","content":"r","reasoning_content":"why"}]`,
			[]string{"<think>why</think>r¦<end>\n"}},
		"parts": {parts, `[` + ask +
			`,{"role":"assistant","content":[{"type":"text","text":"a","image":null},{"type":"text","text":"b"}]}]`, []string{"ab¦<end>\n"}},
		"names": {named, `[{"role":"user","name":"Ann","content":"q"},{"role":"assistant","name":"Bob","content":"a"}]`,
			[]string{"a¦<end>"}},
		"null": {named,
			`[{"role":"user","name":null,"content":"q"},{"role":"assistant","content":"a","tool_calls":null,"weight":null}]`, []string{"a¦<end>"}},
		"weight": {chatML, `[` + ask + `,{"role":"assistant","content":"a","weight":0},` + ask +
			`,{"role":"assistant","content":"b","weight":1}]`, []string{"b¦<|im_end|>\n"}},
		"weight, generation": {template(t, "strict.jinja"), `[` + ask + `,{"role":"assistant","content":"a","weight":0},` + ask +
			`,{"role":"assistant","content":"b","weight":1.0}]`, []string{" b</s>"}},
	} {
		if got := turnsOf(t, c.template, c.messages); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	talked := []Message{{Role: "user", Content: "q"}, {Role: "assistant", Content: "a"}}
	if _, _, err := parse(t, "{{ messages|length }}").Turns(talked, Options{}); !errors.Is(err, ErrRender) {
		t.Errorf("a template that writes no contents: %v", err)
	}
}

// TestEnding: what follows an answer.
func TestEnding(t *testing.T) {
	ask := []Message{{Role: "user", Content: "q"}}
	o := Options{Special: map[string]string{"eos_token": "</s>"}}
	for source, want := range map[string]string{chatML: "<|im_end|>\n", silent: " </s>", bare: "\n", "{{ messages|length }}": ""} {
		if got := parse(t, source).Ending(ask, o); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// TestTemplateNames: which of some variables a template has, without those that it tests.
func TestTemplateNames(t *testing.T) {
	for source, want := range map[string]string{
		"{{ bos_token }}{{ x.eos_token }}":                                 "bos_token",
		"{{ bos_token + eos_token }}":                                      "bos_token eos_token",
		"{% if bos_token is defined %}{{ bos_token }}{% endif %}bos_token": "",
	} {
		if got := strings.Join(parse(t, source).Names("bos_token", "eos_token"), " "); got != want {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

// TestMessageFields: null members are as absent, but in what is data; further ones are kept, in their order.
func TestMessageFields(t *testing.T) {
	for given, want := range map[string]string{
		`{"role":"a","content":"b","x":null}`:                                                                                 "",
		`{"role":"a","content":"b","weight":0,"y":null}`:                                                                      "",
		`{"role":"a","content":null}`:                                                                                         `{"role":"a","content":null}`,
		`{"id":"7","role":"a","content":"b","name":"c","z":{"n":null}}`:                                                       `{"id":"7","role":"a","content":"b","name":"c","z":{"n":null}}`,
		`{"role":"a","tool_calls":[{"id":null,"function":{"name":"f","arguments":{"p":null},"x":null}}]}`:                     `{"role":"a","tool_calls":[{"function":{"name":"f","arguments":{"p":null}}}]}`,
		`{"role":"a","content":[{"type":"text","text":"null","image":null}, {"type":"image","image":"i","text":null}]}`:       `{"role":"a","content":[{"type":"text","text":"null"},{"type":"image","image":"i"}]}`,
		`{"role":"a","content":"b","reasoning_content":"c","function_call":{"name":"f","arguments":"{\"x\":null}","y":null}}`: `{"role":"a","content":"b","reasoning_content":"c","function_call":{"name":"f","arguments":"{\"x\":null}"}}`,
	} {
		got, err := ParseMessages([]byte("[" + given + "]"))
		if err != nil || string(got[0].Raw) != want {
			t.Errorf("%s: %s, want %s, %v", given, got[0].Raw, want, err)
		}
	}
	for _, weight := range []string{"2", "0.5", `"0"`, "true", "{}"} {
		if _, err := ParseMessages([]byte(`[{"role":"a","content":"b","weight":` + weight + `}]`)); !errors.Is(err, ErrMessages) {
			t.Errorf("a weight of %s: %v", weight, err)
		}
	}
}
