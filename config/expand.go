package config

import (
	"fmt"
	"regexp"
	"strings"
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces ${VAR} and ${VAR:-text} with the variable's value. It does not expand
// values again. It rejects a path that still contains ${, because reading the printed
// configuration would expand it.
func expand(path string, env func(string) (string, bool)) (expanded, msg, hint string) {
	var b strings.Builder
	rest := path
	for {
		before, after, found := strings.Cut(rest, "${")
		b.WriteString(before)
		if !found {
			break
		}
		inside, tail, closed := strings.Cut(after, "}")
		if !closed {
			return "", fmt.Sprintf("%s has ${ without }", quoted(path)), "write ${NAME} or ${NAME:-text}"
		}
		name, fallback, hasFallback := strings.Cut(inside, ":-")
		if !variableName.MatchString(name) {
			return "", fmt.Sprintf("%s is not a valid name of a variable", quoted(name)), "write ${NAME} or ${NAME:-text}"
		}
		value, set := env(name)
		switch {
		case hasFallback && (!set || value == ""):
			value = fallback
		case !set:
			return "", fmt.Sprintf("the environment variable %s is not set", name),
				fmt.Sprintf("set it, or give a default: ${%s:-text}", name)
		}
		b.WriteString(value)
		rest = tail
	}
	if strings.Contains(b.String(), "${") {
		return "", fmt.Sprintf("%s still contains ${ after its variables were replaced", quoted(path)),
			"values of variables are not expanded; remove the ${"
	}
	return b.String(), "", ""
}
