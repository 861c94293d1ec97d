package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/chat/builtin"
)

// DocumentKeys are the keys of documents and of their messages, which data.fields may rename.
var DocumentKeys = []string{"text", "prompt", "completion", "messages", "conversations", "instruction", "input", "output", "system",
	"tools",
	"role", "content"}

// AnswerKeys are further keys of documents with answers, for [preference].
var AnswerKeys = []string{"chosen", "rejected", "label"}

// DocumentFields reads data.fields: for a key of documents, the name that it has in the data.
func DocumentFields(list []string) (names map[string]string, err error) {
	names, problem, hint := fieldNames(list)
	if problem != "" {
		return nil, fmt.Errorf("%s; %s", problem, hint)
	}
	return names, nil
}

func fieldNames(list []string) (names map[string]string, problem, hint string) {
	names = make(map[string]string)
	for _, entry := range list {
		if problem, hint := documentField(entry); problem != "" {
			return nil, problem, hint
		}
		key, name, _ := strings.Cut(entry, "=")
		if names[key] != "" {
			return nil, fmt.Sprintf("%q is given twice: as %q and as %q", key, names[key], name), "keep one of them"
		}
		names[key] = name
	}
	return names, "", ""
}

func documentField(entry string) (problem, hint string) {
	key, name, found := strings.Cut(entry, "=")
	keys := slices.Concat(DocumentKeys, AnswerKeys)
	switch {
	case !found || name == "":
		return quoted(entry) + " renames nothing", `write KEY=NAME, such as "prompt=question"`
	case !slices.Contains(keys, key):
		hint = "use one of " + strings.Join(keys, ", ")
		if near := nearest(key, keys); near != "" {
			hint = fmt.Sprintf("did you mean %q? %s", near, hint)
		}
		return quoted(key) + " is not a key of documents", hint
	}
	return "", ""
}

// documentFields checks data.fields.
var documentFields = &check{`entries such as "prompt=question"`, func(v any) (string, string) {
	list := v.([]string)
	if problem, hint := listUpTo(maxOptions, textUpTo(maxOptionBytes)).judge(list); problem != "" {
		return problem, hint
	}
	_, problem, hint := fieldNames(list)
	return problem, hint
}}

// chatTemplate accepts the built-in chat templates, and paths.
var chatTemplate = &check{enumerate(builtin.Names()) + ", a path", func(v any) (string, string) {
	if isTemplatePath(v.(string)) {
		return textUpTo(maxPathBytes).judge(v)
	}
	problem, hint := orEmpty(among(builtin.Names()...)).judge(v)
	if problem != "" {
		hint += ", or the path of a Jinja file, such as ./template.jinja"
	}
	return problem, hint
}}

// isTemplatePath tells a path from the name of a built-in chat template.
func isTemplatePath(s string) bool { return strings.ContainsAny(s, `/\`) || hasExtension(s, ".jinja") }
