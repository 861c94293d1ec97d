package hf

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// translate translates a pattern of Oniguruma, which the library uses, into an equivalent one of
// regexp2. It refuses patterns whose meaning may differ.
func translate(text string) (string, error) {
	t := translator{text: text}
	out, err := t.alternatives(false, 0)
	if err == nil && t.at < len(t.text) {
		err = t.refuse("a ) without a (")
	}
	return out, err
}

type translator struct {
	text string
	at   int
	nots int // classes such as [^a] so far
}

func (t *translator) refuse(what string) error {
	return fmt.Errorf("%w: the pattern %s has %s at byte %d", ErrUnsupported, clip(t.text), what, t.at)
}

func (t *translator) rest() string { return t.text[t.at:] }

// alternatives translates up to the end of a group. fold: case doesn't count.
func (t *translator) alternatives(fold bool, depth int) (string, error) {
	if depth > maxSteps {
		return "", t.refuse("groups nested more than 100 deep")
	}
	var out strings.Builder
	for t.at < len(t.text) {
		switch t.text[t.at] {
		case ')':
			return out.String(), nil
		case '|':
			out.WriteByte('|')
			t.at++
			continue
		case '(':
			if out.Len() > 0 && (strings.HasPrefix(t.rest(), "(?i)") || strings.HasPrefix(t.rest(), "(?-i)")) {
				return "", t.refuse("(?i) that is not at the start")
			}
		}
		atom, err := t.atom(&fold, depth)
		if err == nil && atom != "" {
			atom, err = t.quantified(atom)
		}
		if err != nil {
			return "", err
		}
		out.WriteString(atom)
	}
	return out.String(), nil
}

// quantified reads what follows an atom: how often it comes.
func (t *translator) quantified(atom string) (string, error) {
	for first := true; t.at < len(t.text); first = false {
		c := t.text[t.at]
		var how string
		switch c {
		case '*', '+', '?':
			how = string(c)
			t.at++
		case '{':
			end := strings.IndexByte(t.rest(), '}')
			if end < 0 || !interval(t.rest()[1:end]) {
				return "", t.refuse("a { that is not a repetition")
			}
			how = t.rest()[:end+1]
			if how[1] == ',' {
				how = "{0" + how[1:]
			}
			t.at += end + 1
		default:
			return atom, nil
		}
		if !first {
			atom = "(" + atom + ")" // see group
		}
		rest := t.rest()
		switch {
		case strings.HasPrefix(rest, "?") && (c != '{' || strings.Contains(how, ",")):
			t.at++
			atom += how + "?"
		case strings.HasPrefix(rest, "?"):
			return "", t.refuse("{n}?")
		case strings.HasPrefix(rest, "+") && c != '{':
			t.at++
			atom = "(?>" + atom + how + ")"
		default:
			atom += how
		}
	}
	return atom, nil
}

func interval(s string) bool {
	digits := 0
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c != ',':
			return false
		}
	}
	return digits > 0 && digits < 8 && strings.Count(s, ",") <= 1
}

// atom translates a character, class, group or anchor.
func (t *translator) atom(fold *bool, depth int) (string, error) {
	switch c := t.text[t.at]; c {
	case '(':
		return t.group(fold, depth)
	case '[':
		return t.class(*fold)
	case '\\':
		return t.escape(*fold, false)
	case '*', '+', '?':
		return "", t.refuse("a quantifier without an operand")
	case '^', '$', '.':
		t.at++
		return string(c), nil
	}
	r, size := utf8.DecodeRuneInString(t.rest())
	t.at += size
	return t.character(r, *fold)
}

// character is one that stands for itself.
func (t *translator) character(r rune, fold bool) (string, error) {
	if !fold {
		return quoteRune(r), nil
	}
	if r >= utf8.RuneSelf {
		return "", t.refuse("a character that is not ASCII in a case-insensitive part")
	}
	return foldedClass(string(r)), nil
}

func quoteRune(r rune) string {
	switch {
	case r > unicode.MaxASCII:
		return string(r)
	case r >= '0' && r <= '9', r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z':
		return string(r)
	}
	return fmt.Sprintf(`\x%02x`, r)
}

// foldedClass matches the letters, whatever their case.
func foldedClass(letters string) string {
	var out strings.Builder
	out.WriteByte('[')
	foldInto(&out, letters)
	out.WriteByte(']')
	return out.String()
}

func foldInto(out *strings.Builder, letters string) {
	for _, r := range letters {
		lower, upper := unicode.ToLower(r), unicode.ToUpper(r)
		out.WriteString(quoteRune(lower))
		if upper != lower {
			out.WriteString(quoteRune(upper))
		}
		switch lower {
		case 's':
			out.WriteRune('ſ')
		case 'k':
			out.WriteRune('\u212A')
		}
	}
}

func (t *translator) group(fold *bool, depth int) (string, error) {
	inner := *fold
	open := "(?:"
	rest := t.rest()
	switch {
	case !strings.HasPrefix(rest, "(?"):
		open, t.at = "(?:", t.at+1 // what it captures nobody asks for
	case strings.HasPrefix(rest, "(?:"), strings.HasPrefix(rest, "(?="), strings.HasPrefix(rest, "(?!"), strings.HasPrefix(rest, "(?>"):
		open = rest[:3]
		t.at += 3
	case strings.HasPrefix(rest, "(?<="), strings.HasPrefix(rest, "(?<!"):
		open = rest[:4]
		t.at += 4
	case strings.HasPrefix(rest, "(?i:"), strings.HasPrefix(rest, "(?-i:"):
		inner = rest[2] == 'i'
		t.at += strings.IndexByte(rest, ':') + 1
	case strings.HasPrefix(rest, "(?i)"), strings.HasPrefix(rest, "(?-i)"):
		// It is at the start, and applies up to the end of the group.
		*fold = rest[2] == 'i'
		t.at += strings.IndexByte(rest, ')') + 1
		return "", nil
	case strings.HasPrefix(rest, "(?m:"):
		open = "(?s:"
		t.at += 4
	default:
		end := min(len(rest), 5)
		for end > 0 && !utf8.ValidString(rest[:end]) {
			end--
		}
		return "", t.refuse("the unsupported group " + rest[:end])
	}
	body, err := t.alternatives(inner, depth+1)
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(t.rest(), ")") {
		return "", t.refuse("a ( without a )")
	}
	t.at++
	if open == "(?:" && t.at < len(t.text) && strings.IndexByte("*+?{", t.text[t.at]) >= 0 {
		// regexp2 turns (?:a{2,4})+ into one loop, a{2,}, which matches five where Oniguruma
		// matches four; it does not change a group that captures.
		open = "("
	}
	return open + body + ")", nil
}

// word is a word's character as Oniguruma has it in a class; outside of classes some numbers are, too.
const (
	word    = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}Ⓐ-ⓩ🄰-🅉🅐-🅩🅰-🆉`
	isWord  = "[" + word + "²³¹¼-¾]"
	notWord = "[^" + word + "²³¹¼-¾]"
)

// escape translates what begins with a backslash, inside a class or outside.
func (t *translator) escape(fold, inClass bool) (string, error) {
	t.at++
	if t.at >= len(t.text) {
		return "", t.refuse(`a \ at the end`)
	}
	c, size := utf8.DecodeRuneInString(t.rest())
	t.at += size
	switch c {
	case 's', 'd':
		return `\` + string(c), nil
	case 'S', 'D': // regexp2 joins \S, \D and \P{…} to a class of something else
		return `[^\` + string(unicode.ToLower(c)) + "]", nil
	case 'p', 'P':
		return t.property(c == 'P', fold)
	case 'n', 'r', 't', 'f', 'v', 'a', 'e':
		return `\` + string(c), nil
	case 'x', 'u':
		return t.code(c, fold, inClass)
	case 'w':
		if inClass {
			return word, nil
		}
		return isWord, nil
	case 'W', 'b', 'B':
		if inClass && c == 'W' {
			return "[^" + word + "]", nil
		}
		if !inClass {
			return map[rune]string{
				'W': notWord,
				'b': "(?:(?<=" + isWord + ")(?!" + isWord + ")|(?<!" + isWord + ")(?=" + isWord + "))",
				'B': "(?:(?<=" + isWord + ")(?=" + isWord + ")|(?<!" + isWord + ")(?!" + isWord + "))",
			}[c], nil
		}
	case 'h':
		if inClass {
			return "0-9a-fA-F", nil
		}
		return "[0-9a-fA-F]", nil
	case 'A', 'z', 'Z':
		if !inClass {
			return `\` + string(c), nil
		}
	}
	if named := c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'; c < utf8.RuneSelf && !named {
		return quoteRune(c), nil // it stands for itself
	}
	return "", t.refuse(`\` + string(c))
}

// code translates \xHH, \x{H…} and \uHHHH.
func (t *translator) code(c rune, fold, inClass bool) (string, error) {
	var digits string
	if rest := t.rest(); strings.HasPrefix(rest, "{") && c == 'x' {
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return "", t.refuse(`\x{ without a }`)
		}
		digits = rest[1:end]
		t.at += end + 1
	} else {
		n := 2
		if c == 'u' {
			n = 4
		}
		if len(rest) < n {
			return "", t.refuse(`\` + string(c))
		}
		digits = rest[:n]
		t.at += n
	}
	var r rune
	for _, d := range digits {
		v := strings.IndexRune("0123456789abcdef", unicode.ToLower(d))
		if v < 0 || r > utf8.MaxRune {
			return "", t.refuse(`\` + string(c) + " without a number")
		}
		r = r<<4 | rune(v)
	}
	if digits == "" || !utf8.ValidRune(r) || c == 'x' && len(digits) == 2 && r >= utf8.RuneSelf {
		return "", t.refuse(`\` + string(c) + " with an invalid character")
	}
	if inClass {
		return quoteRune(r), nil
	}
	return t.character(r, fold)
}

// property translates \p{…}.
func (t *translator) property(not, fold bool) (string, error) {
	rest := t.rest()
	end := strings.IndexByte(rest, '}')
	if !strings.HasPrefix(rest, "{") || end < 0 {
		return "", t.refuse(`\p without a {name}`)
	}
	name := rest[1:end]
	if strings.HasPrefix(name, "^") {
		name, not = name[1:], !not
	}
	known := unicode.Categories[name] != nil && name != "LC" && name != "C" && name != "Cs" && name != "Cn"
	switch name { // scripts of which all new characters have a stand-in of that script
	case "Han", "Hiragana", "Katakana", "Hangul", "Latin", "Greek", "Cyrillic", "Thai", "Hebrew", "Devanagari":
		known = true
	}
	if !known || fold && (name == "Lu" || name == "Ll" || name == "Lt") {
		return "", t.refuse(`\p{` + clip(name) + "}")
	}
	t.at += end + 1
	if not {
		return `[^\p{` + name + "}]", nil
	}
	return `\p{` + name + "}", nil
}
