package chat

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const weather = `[{"type":"function","function":{"name":"weather","description":"","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}}}}}]`

// TestCallMarker: the text before a call is found in templates of several forms.
func TestCallMarker(t *testing.T) {
	const start, end = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for t in m.tool_calls or [] %}`,
		`{% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	for call, want := range map[string]string{
		"\n<tool_call>\n" + `{"name": "{{ t.function.name }}", "arguments": {{ t.function.arguments | tojson }}}` +
			"\n</tool_call>": "<tool_call>",
		"\n<tool_call>\n" + `<function={{ t.function.name }}>` +
			"\n</function></tool_call>": "<tool_call>",
		`[TOOL_CALLS] [{"name": "{{ t.function.name }}"}]`:       "[TOOL_CALLS]",
		`{"name": "{{ t.function.name }}", "parameters": {}}`:    "",
		"<think>\n\n</think>\n\n<call>{{ t.function | tojson }}": "<call>",
		"no calls": "",
	} {
		template, err := Parse(start + call + end)
		if err != nil {
			t.Fatal(err)
		}
		if got := template.CallMarker(Options{Tools: json.RawMessage(weather)}); got != want {
			t.Errorf("%s: %q, want %q", call, got, want)
		}
	}
}

// TestParseCalls: calls in the forms of published models; what is not one of them is a text.
func TestParseCalls(t *testing.T) {
	for _, c := range []struct{ answer, marker, content, calls string }{
		{"It rains.", "<tool_call>", "It rains.", ""},
		{"<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>", "<tool_call>", "",
			`weather {"city": "Rome"}`},
		{"I look.\n\n<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"b\",\"arguments\":{\"x\":[1]}}</tool_call>",
			"<tool_call>", "I look.", `a {}; b {"x":[1]}`},
		{"<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
			"<tool_call>", "", `weather {"city":"Rome","days":3}`},
		{`[{"name": "weather", "arguments": {"days": 2}}]`, "[TOOL_CALLS]", "", `weather {"days": 2}`},
		{`{"name": "weather", "parameters": "{\"days\": 2}"}`, "", "", `weather {"days": 2}`},
		{`{"name": "other", "parameters": {}}`, "", `{"name": "other", "parameters": {}}`, ""},
		{`{"name": "weather", "parameters": {}} and more`, "", `{"name": "weather", "parameters": {}} and more`, ""},
		{"<tool_call>\n{\"name\": \"weather\", \"argum", "<tool_call>", "<tool_call>\n{\"name\": \"weather\", \"argum", ""},
		{"<tool_call>{\"name\":\"weather\",\"arguments\":[]}", "<tool_call>", "<tool_call>{\"name\":\"weather\",\"arguments\":[]}", ""},
		{"<tool_call>[]", "<tool_call>", "<tool_call>[]", ""},
		{"<tool_call><function=x>", "<tool_call>", "<tool_call><function=x>", ""},
		{"<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n\nI wait. ", "<tool_call>", "\n\nI wait.", "a {}"},
		{"I look. <tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>Then: <tool_call>{\"name\":\"b\",\"arguments\":{}} or <tool_call>",
			"<tool_call>", "I look.\nThen: or <tool_call>", "a {}; b {}"},
		{"<|call|>{\"name\":\"a\",\"arguments\":{}}<|end|><|call|>{\"name\":\"b\",\"arguments\":{}}<|end|>", "<|call|>", "", "a {}; b {}"},
		{"<tool_call> begins <tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>", "<tool_call>", "<tool_call> begins", "a {}"},
		{"", "", "", ""},
	} {
		content, calls := ParseCalls(c.answer, c.marker, json.RawMessage(weather))
		var all []string
		for _, one := range calls {
			all = append(all, fmt.Sprintf("%s %s", one.Name, one.Arguments))
		}
		if got := strings.Join(all, "; "); content != c.content || got != c.calls {
			t.Errorf("%q: %q and %q, want %q and %q", c.answer, content, got, c.content, c.calls)
		}
	}
}

// FuzzParseCalls: no answer panics, arguments are objects, and what a stream has sent before the end is the start of the content.
func FuzzParseCalls(f *testing.F) {
	for _, answer := range []string{"text <tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>",
		`[{"name":"weather","parameters":"{}"}]`,
		"<tool_call><function=weather><parameter=days>\n3\n</parameter></function>", "<too", "  {"} {
		f.Add(answer, "<tool_call>")
		f.Add(answer, "")
	}
	f.Fuzz(func(t *testing.T, answer, marker string) {
		content, calls := ParseCalls(answer, marker, json.RawMessage(weather))
		for _, c := range calls {
			var object map[string]json.RawMessage
			if c.Name == "" || json.Unmarshal(c.Arguments, &object) != nil || object == nil {
				t.Errorf("a call of %q with %s", c.Name, c.Arguments)
			}
		}
		if calls == nil && content != answer {
			t.Errorf("the content of %q is %q", answer, content)
		}
		sent := 0
		for n := range len(answer) + 1 {
			held := HeldBack(answer[:n], marker)
			if held < 0 || held > n {
				t.Fatalf("%d of %d bytes are held back", held, n)
			}
			sent = max(sent, n-held)
		}
		if sent > len(content) || answer[:sent] != content[:sent] {
			t.Errorf("%q: sent %q, but the content is %q", answer, answer[:sent], content)
		}
	})
}
