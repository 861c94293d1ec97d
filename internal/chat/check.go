package chat

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// check refuses deeply nested brackets before the template is parsed. It returns the source in a
// form that the library reads correctly.
func check(source string, c *config.Config) (string, error) {
	var all []*tokens.Token // but white space
	for stream := tokens.LexAll(source, c); !stream.End() && stream.Current() != nil; stream.Next() {
		if stream.Current().Type != tokens.Whitespace {
			all = append(all, stream.Current())
		}
	}
	depth := 0
	for _, t := range all {
		switch t.Type {
		case tokens.Error:
			return "", fmt.Errorf("line %d: %s", t.Line, strconv.Quote(t.Val))
		case tokens.LeftParenthesis, tokens.LeftBracket, tokens.LeftBrace:
			if depth++; depth > maxNesting {
				return "", fmt.Errorf("line %d: brackets are nested more than %d deep", t.Line, maxNesting)
			}
		case tokens.RightParenthesis, tokens.RightBracket, tokens.RightBrace:
			depth--
		case tokens.BlockBegin, tokens.VariableBegin:
			depth = 0
		}
	}
	read, err := conditions(negations(source, all), c)
	if err != nil {
		return "", err
	}
	return read, nil
}

// variablesIn are the names in a template that are no members of others, without those that it tests,
// as in "x is defined".
func variablesIn(source string, c *config.Config) map[string]bool {
	names, tested := make(map[string]bool), make(map[string]bool)
	var last *tokens.Token
	dot := false // in front of last
	for stream := tokens.LexAll(source, c); !stream.End() && stream.Current() != nil; stream.Next() {
		t := stream.Current()
		if t.Type == tokens.Whitespace {
			continue
		}
		if last != nil && last.Type == tokens.Name && !dot {
			names[last.Val] = true
			tested[last.Val] = tested[last.Val] || t.Type == tokens.Is
		}
		dot = last != nil && last.Type == tokens.Dot
		last = t
	}
	for name := range tested {
		if tested[name] {
			delete(names, name)
		}
	}
	return names
}

// negations writes "not x is defined" as "x is not defined", and "not x in y" as "x not in y": the
// library would take them for tests of "not x".
func negations(source string, all []*tokens.Token) string {
	var b strings.Builder
	at := 0
	for i, t := range all {
		end := operand(all, i+1)
		if t.Type != tokens.Not || end == i+1 || end >= len(all) || t.Pos < at || !strings.HasPrefix(source[t.Pos:], "not") {
			continue
		}
		is := all[end]
		again := end+1 < len(all) && all[end+1].Type == tokens.Not
		text := source[all[i+1].Pos:is.Pos]
		b.WriteString(source[at:t.Pos])
		switch {
		case is.Type == tokens.Is && again:
			b.WriteString(text + "is")
			at = all[end+1].Pos + len("not")
		case is.Type == tokens.Is:
			b.WriteString(text + "is not")
			at = is.Pos + len("is")
		case is.Type == tokens.In:
			b.WriteString(text + "not in")
			at = is.Pos + len("in")
		default:
			at = t.Pos
		}
	}
	return b.String() + source[at:]
}

// operand is behind a name with members, such as a.b['c'], that begins at a token; else that token.
func operand(all []*tokens.Token, from int) int {
	kind := func(i int, k ...tokens.Type) bool { return i < len(all) && slices.Contains(k, all[i].Type) }
	if !kind(from, tokens.Name, tokens.String) {
		return from
	}
	for i := from + 1; ; {
		switch {
		case kind(i, tokens.Dot) && kind(i+1, tokens.Name, tokens.Integer):
			i += 2
		case kind(i, tokens.LeftBracket) && kind(i+1, tokens.String, tokens.Integer, tokens.Name) && kind(i+2, tokens.RightBracket):
			i += 3
		default:
			return i
		}
	}
}
