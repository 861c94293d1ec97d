package chat

import (
	"encoding/json"
	"strings"
)

// Call is a call of a function in an assistant's answer.
type Call struct {
	Name      string
	Arguments json.RawMessage // an object
}

// callName is a function that no template knows.
const callName = "qzprobe"

// CallMarker returns the text with which the template begins a call of a function in an answer, such as "<tool_call>". "": it
// writes the call's JSON alone, or no calls at all.
func (t *Template) CallMarker(o Options) string {
	if o.Tools == nil {
		o.Tools = json.RawMessage(`[{"type":"function","function":{"name":"` + callName +
			`","description":"x","parameters":{"type":"object","properties":{}}}}]`)
	}
	said := []Message{{Role: "user", Content: "x"}, {Role: "assistant",
		Raw: json.RawMessage(`{"role":"assistant","content":"","tool_calls":[{"type":"function","id":"call00000","function":{"name":"` +
			callName + `","arguments":{}}}]}`)}}
	text, _, err := t.render(said, o)
	if err != nil {
		return ""
	}
	asking := o
	asking.AddGenerationPrompt = true
	before, _, err := t.render(said[:1], asking)
	at := strings.LastIndex(text, callName)
	if err != nil || at < 0 {
		return ""
	}
	from := common(before, text)
	if from > at {
		return ""
	}
	text = text[from:at]
	for _, open := range []string{"[", "{", functionStart} { // the call itself
		if i := strings.LastIndex(text, open); i >= 0 && (open != "[" || strings.HasPrefix(strings.TrimSpace(text[i+1:]), "{")) {
			text = text[:i]
		}
	}
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}

// ParseCalls splits an answer into its text and the calls of functions in it. marker is the template's CallMarker. Calls are
// JSON objects, or lists of them, with a name and arguments (or parameters); or they are written with tags such as
// <function=NAME> and <parameter=NAME>. What is not a call, and no tag that ends one, is content. Without a marker, the whole
// answer must be calls of the given functions, or it is a text.
func ParseCalls(answer, marker string, tools json.RawMessage) (content string, calls []Call) {
	types := parameterTypes(tools)
	at := -1
	if marker != "" {
		at = strings.Index(answer, marker)
	}
	if at < 0 {
		calls, rest := callsAt(answer, types)
		if strings.TrimSpace(rest) != "" || len(calls) == 0 {
			return answer, nil
		}
		for _, c := range calls {
			if _, known := types[c.Name]; !known {
				return answer, nil
			}
		}
		return "", calls
	}
	rest, text := answer, 0 // text: the bytes of rest that are known to be no call
	for {
		i := strings.Index(rest[text:], marker)
		if i < 0 {
			break
		}
		more, after := callsAt(rest[text+i+len(marker):], types)
		if len(more) == 0 {
			text += i + len(marker)
			continue
		}
		content = withMore(content, rest[:text+i])
		calls, rest, text = append(calls, more...), afterEnds(after, marker), 0
	}
	if calls == nil {
		return answer, nil
	}
	return withMore(content, rest), calls
}

// withMore adds the text between or after calls to the text before.
func withMore(content, more string) string {
	switch more = strings.TrimRight(more, " \n"); {
	case content == "":
		return more
	case more == "" || strings.ContainsAny(more[:1], " \n"):
		return content + more
	}
	return content + "\n" + more
}

// callEnds are the forms of the tags that end a call, such as "</tool_call>" and "<|tool_call_end|>".
var callEnds = [][2]string{{"</", ">"}, {"<|", "|>"}, {"<｜", "｜>"}, {"[/", "]"}}

// afterEnds skips the tags that end a call. A marker begins the next one.
func afterEnds(text, marker string) string {
next:
	for {
		trimmed := strings.TrimLeft(text, " \n")
		for _, tag := range callEnds {
			name, opens := strings.CutPrefix(trimmed, tag[0])
			name, rest, closes := strings.Cut(name, tag[1])
			if opens && closes && !strings.ContainsAny(name, " \n<>[]") && !strings.HasPrefix(trimmed, marker) {
				text = rest
				continue next
			}
		}
		return text
	}
}

// HeldBack returns how many bytes at the end of an unfinished answer may belong to a call of a function.
func HeldBack(answer, marker string) int {
	if trimmed := strings.TrimLeft(answer, " \n"); trimmed == "" || strings.ContainsAny(trimmed[:1], "{[") ||
		strings.HasPrefix(trimmed, functionStart) {
		return len(answer)
	}
	if marker == "" {
		return 0
	}
	if at := strings.Index(answer, marker); at >= 0 {
		return len(answer) - len(strings.TrimRight(answer[:at], " \n"))
	}
	end := answer
	for n := min(len(marker)-1, len(answer)); n > 0; n-- {
		if strings.HasSuffix(answer, marker[:n]) {
			end = answer[:len(answer)-n]
			break
		}
	}
	return len(answer) - len(strings.TrimRight(end, " \n"))
}

// Calls written with tags, as by Qwen3-Coder and Qwen3.5.
const (
	functionStart  = "<function="
	functionEnd    = "</function>"
	parameterStart = "<parameter="
	parameterEnd   = "</parameter>"
)

// callsAt reads the calls at the start of a text, and returns the rest of it.
func callsAt(text string, types map[string]map[string]string) (calls []Call, rest string) {
	trimmed := strings.TrimLeft(text, " \n")
	if strings.HasPrefix(trimmed, functionStart) {
		call, rest, ok := tagged(trimmed, types)
		if !ok {
			return nil, text
		}
		return []Call{call}, rest
	}
	if trimmed == "" || !strings.ContainsAny(trimmed[:1], "{[") {
		return nil, text
	}
	dec := json.NewDecoder(strings.NewReader(trimmed))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return nil, text
	}
	list := []json.RawMessage{raw}
	if raw[0] == '[' && json.Unmarshal(raw, &list) != nil {
		return nil, text
	}
	for _, one := range list {
		call, ok := objectCall(one)
		if !ok {
			return nil, text
		}
		calls = append(calls, call)
	}
	return calls, trimmed[dec.InputOffset():]
}

// objectCall reads a call as a JSON object.
func objectCall(raw json.RawMessage) (c Call, ok bool) {
	var o struct {
		Name                  string
		Arguments, Parameters json.RawMessage
	}
	if json.Unmarshal(raw, &o) != nil || o.Name == "" {
		return c, false
	}
	args := o.Arguments
	if args == nil {
		args = o.Parameters
	}
	var text string
	if json.Unmarshal(args, &text) == nil && text != "" { // JSON in a text
		args = json.RawMessage(text)
	}
	var object map[string]json.RawMessage
	if args == nil || json.Unmarshal(args, &object) != nil || object == nil {
		return c, false
	}
	return Call{o.Name, args}, true
}

// tagged reads a call written with tags.
func tagged(text string, types map[string]map[string]string) (c Call, rest string, ok bool) {
	body, rest, ok := strings.Cut(text[len(functionStart):], functionEnd)
	name, body, named := strings.Cut(body, ">")
	if !ok || !named || name == "" {
		return c, "", false
	}
	args := fields{}
	for {
		_, after, more := strings.Cut(body, parameterStart)
		if !more {
			break
		}
		value, following, closed := strings.Cut(after, parameterEnd)
		key, value, keyed := strings.Cut(value, ">")
		if !closed || !keyed {
			return c, "", false
		}
		body = following
		value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		f := field{key: key, value: asJSON(value)}
		if t := types[name][key]; t != "" && t != "string" && json.Valid([]byte(value)) {
			f.value = json.RawMessage(value)
		}
		args = append(args, f)
	}
	return Call{name, args.object()}, rest, true
}

// parameterTypes returns the types of the parameters of functions, by name.
func parameterTypes(tools json.RawMessage) map[string]map[string]string {
	type function struct {
		Name       string
		Parameters struct {
			Properties map[string]struct {
				Type any
			}
		}
	}
	var list []json.RawMessage
	_ = json.Unmarshal(tools, &list) // without tools there are none
	types := make(map[string]map[string]string)
	for _, raw := range list {
		var tool struct{ Function *function }
		if json.Unmarshal(raw, &tool) != nil {
			continue
		}
		if tool.Function == nil && json.Unmarshal(raw, &tool.Function) != nil {
			continue
		}
		of := make(map[string]string)
		for name, p := range tool.Function.Parameters.Properties {
			of[name], _ = p.Type.(string)
		}
		types[tool.Function.Name] = of
	}
	return types
}
