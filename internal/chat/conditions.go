package chat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// The library reads a condition, a if b else c, only at the end of an output or of a set, and
// methods of an expression in brackets not at all. Before it parses, both are rewritten as calls of
// these functions: pick((b) and keep(a) or keep(c)), where "and" and "or" compute only what is
// needed, and same((x|trim)).split().
const (
	pickName = "__pick__"
	keepName = "__keep__"
	sameName = "__same__"
)

// keep holds a value until pick takes it. Nothing is computed between the two.
func keep(e *exec.Evaluator, args *exec.VarArgs) (bool, error) {
	b := of(e.Environment.Context)
	b.spend(1)
	b.kept = args.First()
	return true, nil
}

// pick is what was kept, or not defined where the condition is false and has no else.
func pick(e *exec.Evaluator, args *exec.VarArgs) (*exec.Value, error) {
	b := of(e.Environment.Context)
	v := b.kept
	b.kept = nil
	if v == nil || !args.First().IsTrue() {
		return exec.AsValue(nil), nil
	}
	return v, nil
}

func same(e *exec.Evaluator, args *exec.VarArgs) (*exec.Value, error) {
	of(e.Environment.Context).spend(1)
	return args.First(), nil
}

// conditions writes a template's conditions and brackets as calls.
func conditions(source string, c *config.Config) (string, error) {
	w := &rewriter{source: source}
	for stream := tokens.LexAll(source, c); !stream.End() && stream.Current() != nil; stream.Next() {
		if stream.Current().Type != tokens.Whitespace {
			w.all = append(w.all, stream.Current())
		}
	}
	if len(w.all) == 0 {
		return source, nil
	}
	var b strings.Builder
	b.WriteString(source[:w.all[0].Pos])
	for i := 0; i < len(w.all); i++ {
		b.WriteString(w.chunk(i))
		switch from := i + 1; w.all[i].Type {
		case tokens.VariableBegin:
			i = w.find(from, len(w.all), tokens.VariableEnd)
			b.WriteString(w.list(from, i, true))
		case tokens.BlockBegin:
			i = w.find(from, len(w.all), tokens.BlockEnd)
			at := i
			if from < i && w.all[from].Val == "set" {
				at = w.find(from, i, tokens.Assign)
			}
			b.WriteString(w.plain(from, at))
			if at < i {
				b.WriteString(w.chunk(at) + w.list(at+1, i, true))
			}
		default:
			continue
		}
		i-- // what ends it is next
		if w.err != nil {
			return "", w.err
		}
	}
	return b.String(), nil
}

// rewriter writes tokens as they stand in a source, but for conditions and brackets.
type rewriter struct {
	source string
	all    []*tokens.Token // but white space
	err    error
}

// chunk is a token and the white space behind it. None is the name of a variable here.
func (w *rewriter) chunk(i int) string {
	if t := w.all[i]; t.Type == tokens.Name && t.Val == "None" && (i == 0 || w.all[i-1].Type != tokens.Dot) {
		return "none" + strings.TrimPrefix(w.between(i), "None")
	}
	return w.between(i)
}

func (w *rewriter) between(i int) string {
	if i+1 == len(w.all) {
		return w.source[w.all[i].Pos:]
	}
	return w.source[w.all[i].Pos:w.all[i+1].Pos]
}

// step is by how much a token changes the depth of brackets.
func step(t *tokens.Token) int {
	switch t.Type {
	case tokens.LeftParenthesis, tokens.LeftBracket, tokens.LeftBrace:
		return 1
	case tokens.RightParenthesis, tokens.RightBracket, tokens.RightBrace:
		return -1
	}
	return 0
}

// find is the first token of these types outside of brackets, else the end.
func (w *rewriter) find(from, to int, kinds ...tokens.Type) int {
	depth := 0
	for i := from; i < to; i++ {
		if depth == 0 && slices.Contains(kinds, w.all[i].Type) {
			return i
		}
		depth += step(w.all[i])
	}
	return to
}

// word is the first such name outside of brackets, else the end.
func (w *rewriter) word(name string, from, to int) int {
	i := w.find(from, to, tokens.Name)
	for i < to && w.all[i].Val != name {
		i = w.find(i+1, to, tokens.Name)
	}
	return i
}

// list writes expressions between commas, colons and "=".
func (w *rewriter) list(from, to int, conditions bool) string {
	var b strings.Builder
	for {
		end := w.find(from, to, tokens.Comma, tokens.Colon, tokens.Assign)
		if conditions {
			b.WriteString(w.expression(from, end, 0))
		} else {
			b.WriteString(w.plain(from, end))
		}
		if end == to {
			return b.String()
		}
		b.WriteString(w.chunk(end))
		from = end + 1
	}
}

// expression writes one that may be a condition, whose last part may be one again.
func (w *rewriter) expression(from, to, chain int) string {
	at := w.word("if", from, to)
	if at == to {
		return w.plain(from, to)
	}
	if chain == maxNesting && w.err == nil {
		w.err = fmt.Errorf("line %d: conditions are nested more than %d deep", w.all[at].Line, maxNesting)
	}
	if w.err != nil {
		return ""
	}
	other := w.word("else", at+1, to)
	text := pickName + "((" + w.plain(at+1, other) + ") and " + keepName + "(" + w.plain(from, at) + ")"
	if other < to {
		text += " or " + keepName + "(" + w.expression(other+1, to, chain+1) + ")"
	}
	return text + ") "
}

// plain writes tokens, and what is in brackets among them.
func (w *rewriter) plain(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		if step(w.all[i]) < 1 {
			b.WriteString(w.chunk(i))
			continue
		}
		end := i + 1
		for depth := 1; end < to; end++ {
			if depth += step(w.all[end]); depth == 0 {
				break
			}
		}
		if end < to && w.grouped(from, i, end, to) {
			b.WriteString(sameName)
		}
		b.WriteString(w.chunk(i) + w.list(i+1, end, true))
		if i = end; end < to {
			b.WriteString(w.chunk(end))
		}
	}
	return b.String()
}

// grouped reports whether brackets are around one expression of which something is asked.
func (w *rewriter) grouped(from, open, end, to int) bool {
	if w.all[open].Type != tokens.LeftParenthesis || end == open+1 || end+1 == to || w.find(open+1, end, tokens.Comma) < end {
		return false
	}
	// Of what is compared or filtered it must be known that it is in brackets: (a == b) == c is no chain.
	switch w.all[end+1].Type {
	case tokens.Dot, tokens.LeftBracket, tokens.Equals, tokens.Ne, tokens.LowerThan, tokens.LowerThanOrEqual, tokens.GreaterThan,
		tokens.GreaterThanOrEqual, tokens.Pipe:
	default:
		return false
	}
	if open == from {
		return true
	}
	switch before := w.all[open-1]; before.Type {
	case tokens.Name:
		return before.Val == "if" || before.Val == "elif" || before.Val == "else" || before.Val == "do"
	case tokens.RightParenthesis, tokens.RightBracket, tokens.RightBrace, tokens.String:
		return false
	}
	return true
}
