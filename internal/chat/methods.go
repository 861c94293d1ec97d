package chat

import (
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// The methods of Python's texts, lists, tuples and dicts. Those that would change a value, the sandbox of
// transformers refuses.

var stringMethods = map[string]func(s string, c *call) any{
	"capitalize": func(s string, c *call) any { c.need(0); return capitalize(s) },
	"upper":      func(s string, c *call) any { c.need(0); return upper(s) },
	"lower":      func(s string, c *call) any { c.need(0); return lower(s) },
	"title":      func(s string, c *call) any { c.need(0); return title(s) },
	"swapcase":   func(s string, c *call) any { c.need(0); return swapcase(s) },
	"isalnum":    is(func(r rune) bool { return unicode.IsLetter(r) || isNumeric(r) }),
	"isalpha":    is(unicode.IsLetter),
	"isdecimal":  is(func(r rune) bool { return unicode.Is(unicode.Nd, r) }),
	"isdigit":    is(func(r rune) bool { return unicode.Is(unicode.Nd, r) || superscript(r) }),
	"isnumeric":  is(isNumeric),
	"isspace":    is(space),
	"isascii": func(s string, c *call) any {
		c.need(0)
		return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
	},
	"isprintable": func(s string, c *call) any {
		c.need(0)
		return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
	},
	"isidentifier": func(s string, c *call) any {
		c.need(0)
		letter := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) }
		for i, r := range s {
			if i == 0 && !letter(r) {
				return false
			}
		}
		return every(s, func(r rune) bool {
			return letter(r) || unicode.In(r, unicode.Nd, unicode.Mn, unicode.Mc, unicode.Pc)
		})
	},
	"istitle": func(s string, c *call) any { c.need(0); return istitle(s) },
	"isupper": func(s string, c *call) any {
		c.need(0)
		return strings.ContainsFunc(s, cased) && !strings.ContainsFunc(s, func(r rune) bool { return isLower(r) || unicode.IsTitle(r) })
	},
	"islower": func(s string, c *call) any {
		c.need(0)
		return strings.ContainsFunc(s, cased) && !strings.ContainsFunc(s, isUpper)
	},
	"strip":  func(s string, c *call) any { return trim(s, c, strings.Trim, strings.TrimFunc) },
	"lstrip": func(s string, c *call) any { return trim(s, c, strings.TrimLeft, strings.TrimLeftFunc) },
	"rstrip": func(s string, c *call) any { return trim(s, c, strings.TrimRight, strings.TrimRightFunc) },
	"split":  func(s string, c *call) any { return split(s, c, false) },
	"rsplit": func(s string, c *call) any { return split(s, c, true) },
	"splitlines": func(s string, c *call) any {
		return splitlines(s, truth(or(c.bind("keepends"), "keepends", false)))
	},
	"replace": func(s string, c *call) any {
		a := c.bind("old", "new", "count")
		return replace(s, c.text(a["old"]), c.text(a["new"]), c.number(or(a, "count", -1)))
	},
	"startswith": func(s string, c *call) any { return affix(s, c, strings.HasPrefix) },
	"endswith":   func(s string, c *call) any { return affix(s, c, strings.HasSuffix) },
	"find":       func(s string, c *call) any { return find(s, c, strings.Index) },
	"rfind":      func(s string, c *call) any { return find(s, c, strings.LastIndex) },
	"index":      func(s string, c *call) any { return found(find(s, c, strings.Index)) },
	"rindex":     func(s string, c *call) any { return found(find(s, c, strings.LastIndex)) },
	"count": func(s string, c *call) any {
		a := c.bind("sub", "start", "end")
		part, _ := slicedText(s, a["start"], a["end"])
		return strings.Count(part, c.text(a["sub"]))
	},
	"partition": func(s string, c *call) any {
		sep := separator(c, c.need(1)[0])
		before, after, ok := strings.Cut(s, sep)
		if !ok {
			return tuple{s, "", ""}
		}
		return tuple{before, sep, after}
	},
	"rpartition": func(s string, c *call) any {
		sep := separator(c, c.need(1)[0])
		at := strings.LastIndex(s, sep)
		if at < 0 {
			return tuple{"", "", s}
		}
		return tuple{s[:at], sep, s[at+len(sep):]}
	},
	"join": func(s string, c *call) any {
		var parts []string
		n := 0
		for i, v := range iterate(c.need(1)[0]) {
			part, ok := plainValue(v).(string)
			if !ok {
				failf("sequence item %d: expected str instance, %s found", i, typeName(plainValue(v)))
			}
			parts, n = append(parts, part), n+len(part)+len(s)
		}
		return limited(n, func() string { return strings.Join(parts, s) })
	},
	"removeprefix": func(s string, c *call) any { return strings.TrimPrefix(s, c.text(c.need(1)[0])) },
	"removesuffix": func(s string, c *call) any { return strings.TrimSuffix(s, c.text(c.need(1)[0])) },
	"center":       func(s string, c *call) any { return justified(s, c, '^') },
	"ljust":        func(s string, c *call) any { return justified(s, c, '<') },
	"rjust":        func(s string, c *call) any { return justified(s, c, '>') },
	"zfill": func(s string, c *call) any {
		l := layout{width: c.number(c.need(1)[0]), align: '=', fill: '0'}
		sign := ""
		if s != "" && (s[0] == '-' || s[0] == '+') {
			sign, s = s[:1], s[1:]
		}
		l.width = max(l.within(l.width), 0)
		return l.pad(s, sign)
	},
	"expandtabs": func(s string, c *call) any {
		size := c.number(or(c.bind("tabsize"), "tabsize", 8))
		if size < 0 || size > maxTimes {
			unsupported("a tab of this size")
		}
		return expandtabs(s, size)
	},
	"format": func(s string, c *call) any { return braces(s, c.args, c.kw) },
}

// unsafeMethods are those of lists and dicts that change them.
var unsafeMethods = map[string]bool{"append": true, "extend": true, "insert": true, "pop": true, "remove": true, "clear": true,
	"sort": true, "reverse": true,
	"update": true, "setdefault": true, "popitem": true}

// method calls a method of a value of Python's; known says that the value is one.
func method(v any, c *call) (result any, known bool) {
	fail := func(of string) { unsupported("the method " + c.name + " of a " + of) }
	switch x := v.(type) {
	case nil:
		failf("a method of an undefined value: %s", c.name)
	case string:
		m, ok := stringMethods[c.name]
		if !ok {
			fail("str")
		}
		return m(x, c), true
	case []any, tuple, pyRange:
		if _, isList := v.([]any); isList && unsafeMethods[c.name] {
			failf("access to attribute %q of 'list' object is unsafe", c.name)
		}
		list, _ := listOf(v)
		return listMethod(v, list, c, fail), true
	case *exec.Dict:
		if unsafeMethods[c.name] {
			failf("access to attribute %q of 'dict' object is unsafe", c.name)
		}
		return dictMethod(x, c, fail), true
	case none, bool, int, float64, dictView, *generator:
		fail(typeName(v))
	}
	return nil, false
}

func listMethod(v any, list []any, c *call, fail func(string)) any {
	switch c.name {
	case "count":
		n, of := 0, c.need(1)[0]
		for _, one := range list {
			if equal(plainValue(one), of) {
				n++
			}
		}
		return n
	case "index":
		of := c.need(1)[0]
		for i, one := range list {
			if equal(plainValue(one), of) {
				return i
			}
		}
		failf("%s is not in list", repr(of))
	case "copy":
		if _, isList := v.([]any); isList {
			c.need(0)
			return append([]any{}, list...)
		}
	}
	fail(typeName(v))
	return nil
}

func dictMethod(d *exec.Dict, c *call, fail func(string)) any {
	switch c.name {
	case "get":
		a := c.bind("key", "default")
		hashable(a["key"])
		if v, ok := lookup(d, a["key"]); ok {
			return v
		}
		return or(a, "default", null)
	case "keys":
		c.need(0)
		return dictView{"dict_keys", iterate(d)}
	case "values":
		c.need(0)
		list := make([]any, len(d.Pairs))
		for i, p := range d.Pairs {
			list[i] = plainValue(p.Value)
		}
		return dictView{"dict_values", list}
	case "items":
		c.need(0)
		return dictView{"dict_items", items(d)}
	case "copy":
		c.need(0)
		return &exec.Dict{Pairs: append([]*exec.Pair{}, d.Pairs...)}
	}
	fail("dict")
	return nil
}

// items are the pairs of a dict.
func items(d *exec.Dict) []any {
	list := make([]any, len(d.Pairs))
	for i, p := range d.Pairs {
		list[i] = tuple{plainValue(p.Key), plainValue(p.Value)}
	}
	return list
}

func is(kind func(rune) bool) func(string, *call) any {
	return func(s string, c *call) any { c.need(0); return every(s, kind) }
}

func superscript(r rune) bool {
	return r == '²' || r == '³' || r == '¹' || r >= 0x2070 && r <= 0x2089 || r >= 0x2460 && r <= 0x2468
}

func isNumeric(r rune) bool { return unicode.IsNumber(r) }

func justified(s string, c *call, align byte) string {
	a := c.bind("width", "fillchar")
	return justify(s, c.number(a["width"]), c.text(or(a, "fillchar", " ")), align)
}

func separator(c *call, v any) string {
	sep := c.text(v)
	if sep == "" {
		failf("empty separator")
	}
	return sep
}

// limited makes a text of so many bytes.
func limited(n int, text func() string) string {
	if n > maxVariableBytes {
		panic(limitError(tooLong(float64(n))))
	}
	return text()
}

// trim is strip, lstrip or rstrip: of these characters, or of white space.
func trim(s string, c *call, these func(s, cut string) string, white func(s string, f func(rune) bool) string) string {
	v := or(c.bind("chars"), "chars", null)
	if _, is := v.(none); is {
		return white(s, space)
	}
	return these(s, c.text(v))
}

// space is Python's str.isspace.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// find is the place of a text in another one, in characters; -1: there is none.
func find(s string, c *call, index func(s, sub string) int) int {
	a := c.bind("sub", "start", "end")
	part, begin := slicedText(s, a["start"], a["end"])
	at := index(part, c.text(a["sub"]))
	if at < 0 {
		return -1
	}
	return begin + len([]rune(part[:at]))
}

func found(at int) int {
	if at < 0 {
		failf("substring not found")
	}
	return at
}

// split is split or rsplit: at a separator or at runs of white space, at most so many times.
func split(s string, c *call, right bool) any {
	a := c.bind("sep", "maxsplit")
	most := c.number(or(a, "maxsplit", -1))
	var parts []string
	if v := or(a, "sep", null); v == any(null) {
		parts = splitSpace(s, most, right)
	} else {
		parts = splitAt(s, separator(c, v), most, right)
	}
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list
}

func splitAt(s, sep string, most int, right bool) (parts []string) {
	if most < 0 {
		return strings.Split(s, sep)
	}
	if !right {
		return strings.SplitN(s, sep, most+1)
	}
	all := strings.Split(s, sep)
	if keep := len(all) - most; keep > 1 {
		return append([]string{strings.Join(all[:keep], sep)}, all[keep:]...)
	}
	return all
}

func splitSpace(s string, most int, right bool) (parts []string) {
	if most < 0 {
		return strings.FieldsFunc(s, space)
	}
	if right {
		for s = strings.TrimRightFunc(s, space); s != "" && most > 0; most-- {
			at := strings.LastIndexFunc(s, space)
			if at < 0 {
				break
			}
			word := strings.TrimLeftFunc(s[at:], space)
			parts = append([]string{word}, parts...)
			s = strings.TrimRightFunc(s[:at], space)
		}
		if s != "" {
			parts = append([]string{s}, parts...)
		}
		return parts
	}
	for s = strings.TrimLeftFunc(s, space); s != "" && most > 0; most-- {
		at := strings.IndexFunc(s, space)
		if at < 0 {
			break
		}
		parts = append(parts, s[:at])
		s = strings.TrimLeftFunc(s[at:], space)
	}
	if s != "" {
		parts = append(parts, s)
	}
	return parts
}

// replace is replace(old, new, count), whose result may not grow beyond a variable's limit.
func replace(s, from, to string, times int) string {
	if n := strings.Count(s, from); times < 0 || times > n {
		times = n
	}
	if grown := float64(times)*float64(len(to)-len(from)) + float64(len(s)); grown > maxVariableBytes {
		panic(limitError(tooLong(grown)))
	}
	return strings.Replace(s, from, to, times)
}

// affix is startswith or endswith, of a text or of one of several.
func affix(s string, c *call, has func(s, affix string) bool) bool {
	a := c.bind("prefix", "start", "end")
	part, _ := slicedText(s, a["start"], a["end"])
	several, isTuple := a["prefix"].(tuple)
	if !isTuple {
		return has(part, c.text(a["prefix"]))
	}
	for _, one := range several {
		if has(part, c.text(plainValue(one))) {
			return true
		}
	}
	return false
}

func expandtabs(s string, size int) string {
	var b strings.Builder
	column := 0
	for _, r := range s {
		switch {
		case r == '\t' && size > 0:
			n := size - column%size
			b.WriteString(strings.Repeat(" ", n))
			column += n
		case r == '\t':
		case r == '\n' || r == '\r':
			b.WriteRune(r)
			column = 0
		default:
			b.WriteRune(r)
			column++
		}
		if b.Len() > maxVariableBytes {
			panic(limitError(tooLong(float64(b.Len()))))
		}
	}
	return b.String()
}
