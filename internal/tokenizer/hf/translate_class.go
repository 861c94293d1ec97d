package hf

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// charSet is a set of characters, as patterns of regexp2 that match one character each.
type charSet struct {
	items string   // of a class: ranges, characters and properties
	more  []string // what a class of regexp2 cannot have
	not   bool
}

// pattern returns a pattern that matches one character of the set.
func (s charSet) pattern() string {
	if len(s.more) == 0 {
		if s.not {
			return "[^" + s.items + "]"
		}
		return "[" + s.items + "]"
	}
	any := slices.Clone(s.more)
	if s.items != "" {
		any = slices.Insert(any, 0, "["+s.items+"]")
	}
	// Each alternative is the whole character: there is nothing to come back to.
	one := "(?>" + strings.Join(any, "|") + ")"
	if s.not {
		return "(?:(?!" + one + `)[\s\S])`
	}
	return one
}

// both returns a pattern for the characters that all sets have.
func both(sets []charSet) string {
	var out strings.Builder
	out.WriteString("(?:")
	for _, s := range sets[1:] {
		out.WriteString("(?=" + s.pattern() + ")")
	}
	return out.String() + sets[0].pattern() + ")"
}

// class translates […].
func (t *translator) class(fold bool) (string, error) {
	s, err := t.set(fold, 0)
	if err != nil {
		return "", err
	}
	return s.pattern(), nil
}

// set reads a class: sets with && between them, each of which has the items that are written one after
// the other, and classes among them.
func (t *translator) set(fold bool, depth int) (charSet, error) {
	if depth > maxSteps {
		return charSet{}, t.refuse("classes nested more than 100 deep")
	}
	t.at++
	not := strings.HasPrefix(t.rest(), "^")
	if not {
		t.at++
	}
	if strings.HasPrefix(t.rest(), "]") {
		return charSet{}, t.refuse("a class that starts with ]")
	}
	if depth > 0 && not && fold {
		return charSet{}, t.refuse("the nested class [^ in a case-insensitive part")
	}
	if not {
		t.nots++
	}
	nots := t.nots
	var parts []charSet // before each &&
	for {
		part, err := t.items(fold, depth)
		if err != nil {
			return charSet{}, err
		}
		if parts = append(parts, part); len(parts) > maxSteps {
			return charSet{}, t.refuse("more than 100 &&")
		}
		if strings.HasPrefix(t.rest(), "]") {
			t.at++
			break
		}
		if fold {
			return charSet{}, t.refuse("&& in a case-insensitive part")
		}
		t.at += len("&&")
		if strings.HasPrefix(t.rest(), "]") || strings.HasPrefix(t.rest(), "&&") {
			return charSet{}, t.refuse("&& next to nothing")
		}
	}
	if len(parts) == 1 {
		parts[0].not = not
		return parts[0], nil
	}
	if parts[0].items == "" && len(parts[0].more) == 0 {
		return charSet{}, t.refuse("&& next to nothing")
	}
	if not && t.nots > nots {
		// Oniguruma takes a few of them for other sets.
		return charSet{}, t.refuse("[^ with && and a class with [^ in it")
	}
	return charSet{more: []string{both(parts)}, not: not}, nil
}

// items reads what a class has up to its end or to a &&.
func (t *translator) items(fold bool, depth int) (charSet, error) {
	var out strings.Builder
	var more []string
	single := false // the last item was a character: a - behind it makes a range
	ranged := false // the next one ends a range
	for {
		rest := t.rest()
		switch {
		case rest == "":
			return charSet{}, t.refuse("a [ without a ]")
		case rest[0] == ']', strings.HasPrefix(rest, "&&"):
			return charSet{items: out.String(), more: more}, nil
		case strings.HasPrefix(rest, "[:"):
			item, err := t.posix()
			if err != nil {
				return charSet{}, err
			}
			out.WriteString(item)
			single = false
		case rest[0] == '[':
			inner, err := t.set(fold, depth+1)
			if err != nil {
				return charSet{}, err
			}
			if len(inner.more) == 0 && !inner.not {
				out.WriteString(inner.items)
			} else {
				more = append(more, inner.pattern())
			}
			single = false
		case rest[0] == '-':
			t.at++
			next := t.rest()
			switch {
			case single && next != "" && next[0] != ']' && fold:
				return charSet{}, t.refuse("a range in a case-insensitive part")
			case single && (strings.HasPrefix(next, "[") || strings.HasPrefix(next, "&&")):
				return charSet{}, t.refuse("a range without an end")
			case single && next != "" && next[0] != ']':
				out.WriteByte('-')
				ranged = true
			default:
				out.WriteString(`\x2d`)
			}
			single = false
		case rest[0] == '\\':
			item, err := t.escape(fold, true)
			if err != nil {
				return charSet{}, err
			}
			if strings.HasPrefix(item, "[^") {
				more, single, ranged = append(more, item), false, false
				continue
			}
			single = !ranged
			for _, class := range []string{`\s`, `\d`, `\p`, "0-9a"} {
				single = single && !strings.HasPrefix(item, class)
			}
			ranged = false
			out.WriteString(item)
		default:
			r, size := utf8.DecodeRuneInString(rest)
			t.at += size
			single, ranged = !ranged, false
			if fold {
				if r >= utf8.RuneSelf {
					return charSet{}, t.refuse("a character that is not ASCII in a case-insensitive part")
				}
				foldInto(&out, string(r))
				continue
			}
			out.WriteString(quoteRune(r))
		}
	}
}

// posixClasses are the classes such as [:digit:] whose characters Oniguruma's properties have.
var posixClasses = map[string]string{
	"digit": `\p{Nd}`, "space": `\s`, "cntrl": `\p{Cc}`, "xdigit": "0-9a-fA-F", "ascii": `\x00-\x7f`, "blank": `\x09\p{Zs}`, "word": word,
}

// posix reads a class such as [:digit:] inside of a class.
func (t *translator) posix() (string, error) {
	name, _, ok := strings.Cut(strings.TrimPrefix(t.rest(), "[:"), ":]")
	if !ok || len(name) > 10 {
		return "", t.refuse("the nested class [:")
	}
	items, ok := posixClasses[name]
	if !ok {
		return "", t.refuse("[:" + clip(name) + ":]")
	}
	t.at += len("[:" + name + ":]")
	return items, nil
}
