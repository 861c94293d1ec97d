package chat

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// widest is the most characters that a number or a text may be widened to.
const widest = 10_000

// layout is how a value is written: by % or by format().
type layout struct {
	fill                   rune
	align                  byte // '<', '>', '^', '=' or 0
	sign                   byte // '+', ' ' or 0
	alternate, zero, comma bool
	width, precision       int // -1: none
	kind                   byte
}

// percent is format % args.
func percent(format string, args any) string {
	var b strings.Builder
	list, isTuple := args.(tuple)
	if !isTuple {
		list = tuple{args}
	}
	named, isDict := args.(*exec.Dict)
	used := 0
	next := func() any {
		if used == len(list) {
			failf("not enough arguments for format string")
		}
		used++
		return plainValue(list[used-1])
	}
	for at := 0; at < len(format); at++ {
		if format[at] != '%' {
			b.WriteByte(format[at])
			continue
		}
		at++
		var value any
		byName := false
		if at < len(format) && format[at] == '(' {
			end := strings.IndexByte(format[at:], ')')
			if end < 0 {
				failf("incomplete format key")
			}
			if !isDict {
				failf("format requires a mapping")
			}
			name := format[at+1 : at+end]
			v, ok := lookup(named, name)
			if !ok {
				failf("format needs the missing value %q", name)
			}
			value, byName = v, true
			used = len(list)
			at += end + 1
		}
		l := layout{fill: ' ', width: -1, precision: -1}
		at = l.flags(format, at, next)
		if at == len(format) {
			failf("incomplete format")
		}
		if l.kind = format[at]; l.kind == '%' {
			b.WriteByte('%')
			continue
		}
		if !byName {
			value = next()
		}
		b.WriteString(l.percent(value))
	}
	if _, isList := args.([]any); used < len(list) && !isDict && !isList && args != nil { // what could have members may be left over
		failf("not all arguments converted during string formatting")
	}
	return b.String()
}

// flags reads what stands between % and the letter.
func (l *layout) flags(format string, at int, next func() any) int {
	for ; at < len(format); at++ {
		switch format[at] {
		case '-':
			l.align = '<'
		case '+':
			l.sign = '+'
		case ' ':
			if l.sign == 0 {
				l.sign = ' '
			}
		case '#':
			l.alternate = true
		case '0':
			l.zero = true
		default:
			goto sizes
		}
	}
sizes:
	size := func() int {
		if at < len(format) && format[at] == '*' {
			at++
			n, ok := next().(int)
			if !ok {
				failf("* wants int")
			}
			return l.within(n)
		}
		n := -1
		for ; at < len(format) && format[at] >= '0' && format[at] <= '9'; at++ {
			n = l.within(10*max(n, 0) + int(format[at]-'0'))
		}
		return n
	}
	if l.width = size(); l.width < -1 {
		l.align, l.width = '<', -l.width
	}
	if at < len(format) && format[at] == '.' {
		at++
		l.precision = max(size(), 0)
	}
	for at < len(format) && strings.IndexByte("hlL", format[at]) >= 0 {
		at++
	}
	return at
}

func (l *layout) within(n int) int {
	if n > widest || n < -widest {
		panic(limitError(fmt.Sprintf("a format has %d characters; the limit is %d", n, widest)))
	}
	return n
}

// percent writes a value as a letter after % says.
func (l *layout) percent(v any) string {
	switch l.kind {
	case 's', 'r':
		text := str(v)
		if l.kind == 'r' {
			text = repr(v)
		}
		l.zero = false
		return l.pad(l.cut(text), "")
	case 'c':
		if s, ok := v.(string); ok && utf8.RuneCountInString(s) == 1 {
			return l.pad(s, "")
		}
		unsupported("%c of a number")
	case 'd', 'i', 'u':
		i, f, isWhole, ok := numeric(v)
		if !ok {
			failf("%%%c format: a real number is required, not %s", l.kind, typeName(v))
		}
		if !isWhole {
			if math.IsNaN(f) || math.Abs(f) >= 1<<62 {
				unsupported(tooWide)
			}
			i = int(f)
		}
		return l.integer(i, 10)
	case 'x', 'X', 'o':
		i, _, isWhole, ok := numeric(v)
		if !ok || !isWhole {
			failf("%%%c format: an integer is required, not %s", l.kind, typeName(v))
		}
		return l.integer(i, map[byte]int{'x': 16, 'X': 16, 'o': 8}[l.kind])
	case 'e', 'E', 'f', 'F', 'g', 'G':
		_, f, _, ok := numeric(v)
		if !ok {
			failf("must be real number, not %s", typeName(v))
		}
		return l.float(f)
	}
	failf("unsupported format character %q", string(l.kind))
	return ""
}

func (l *layout) cut(text string) string {
	if r := []rune(text); l.precision >= 0 && len(r) > l.precision {
		return string(r[:l.precision])
	}
	return text
}

func (l *layout) integer(i, base int) string {
	digits, sign := strconv.FormatInt(int64(i), base), ""
	if strings.HasPrefix(digits, "-") {
		digits, sign = digits[1:], "-"
	} else if l.sign != 0 {
		sign = string(l.sign)
	}
	for len(digits) < l.precision {
		digits = "0" + digits
	}
	if l.comma {
		digits = thousands(digits)
	}
	if l.kind == 'X' {
		digits = strings.ToUpper(digits)
	}
	if l.alternate && base != 10 {
		sign += "0" + map[byte]string{'x': "x", 'X': "X", 'o': "o"}[l.kind]
	}
	return l.pad(digits, sign)
}

func (l *layout) float(f float64) string {
	precision := l.precision
	if precision < 0 {
		precision = 6
	}
	kind := l.kind
	upper := kind == 'E' || kind == 'F' || kind == 'G'
	if upper {
		kind += 'a' - 'A'
	}
	if kind == 'g' {
		precision = max(precision, 1)
		if l.alternate {
			unsupported("%#g")
		}
	}
	text := floatText(f)
	if !math.IsNaN(f) && !math.IsInf(f, 0) {
		text = strconv.FormatFloat(f, kind, precision, 64)
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		text, sign = text[1:], "-"
	} else if l.sign != 0 {
		sign = string(l.sign)
	}
	if l.comma {
		before, after, found := strings.Cut(text, ".")
		if text = thousands(before); found {
			text += "." + after
		}
	}
	if upper {
		text = strings.ToUpper(text)
	}
	return l.pad(text, sign)
}

func thousands(digits string) string {
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// pad widens a text, whose sign stands in front of zeros.
func (l *layout) pad(text, sign string) string {
	missing := l.width - utf8.RuneCountInString(text) - len(sign)
	if missing <= 0 {
		return sign + text
	}
	align, fill := l.align, l.fill
	if l.zero && align == 0 {
		align, fill = '=', '0'
	}
	side := func(n int) string { return strings.Repeat(string(fill), n) }
	switch align {
	case '<':
		return sign + text + side(missing)
	case '^':
		return side(missing/2) + sign + text + side(missing-missing/2)
	case '=':
		return sign + side(missing) + text
	}
	return side(missing) + sign + text
}

// braces is format.format(args).
func braces(format string, args []any, named map[string]any) string {
	var b strings.Builder
	automatic := 0
	for at := 0; at < len(format); {
		c := format[at]
		if at+1 < len(format) && (c == '{' || c == '}') && format[at+1] == c {
			b.WriteByte(c)
			at += 2
			continue
		}
		switch c {
		case '}':
			failf("single '}' encountered in format string")
		case '{':
			end := strings.IndexByte(format[at:], '}')
			if end < 0 {
				failf("expected '}' before end of string")
			}
			field := format[at+1 : at+end]
			if strings.ContainsAny(field, "{[.") && (strings.Contains(field, "{") || strings.ContainsAny(strings.SplitN(field, ":", 2)[0], "[.")) {
				unsupported("the field {" + field + "} of format()")
			}
			name, how, _ := strings.Cut(field, ":")
			name, conversion, _ := strings.Cut(name, "!")
			b.WriteString(formatted(argument(name, args, named, &automatic), conversion, how))
			at += end + 1
			continue
		}
		b.WriteByte(c)
		at++
	}
	return b.String()
}

func argument(name string, args []any, named map[string]any, automatic *int) any {
	at := *automatic
	if name == "" {
		*automatic++
	} else if n, err := strconv.Atoi(name); err == nil {
		at = n
	} else {
		v, ok := named[name]
		if !ok {
			failf("format needs the missing value %q", name)
		}
		return v
	}
	if at >= len(args) {
		failf("replacement index %d out of range", at)
	}
	return args[at]
}

// formatted is format(v, how).
func formatted(v any, conversion, how string) string {
	switch conversion {
	case "":
	case "s":
		v = str(v)
	case "r":
		v = repr(v)
	default:
		unsupported("the conversion !" + conversion + " of format()")
	}
	if how == "" {
		return str(v)
	}
	l := parseLayout(how)
	if s, ok := v.(string); ok {
		if l.kind != 0 && l.kind != 's' || l.sign != 0 || l.comma {
			failf("unknown format %q of a str", how)
		}
		if l.align == 0 {
			l.align = '<'
		}
		if l.zero {
			l.fill = '0'
		}
		return l.pad(l.cut(s), "")
	}
	_, f, isWhole, ok := numeric(v)
	if _, isBool := v.(bool); !ok || isBool {
		unsupported("format() of a " + typeName(v) + " by " + strconv.Quote(how))
	}
	switch {
	case isWhole && (l.kind == 0 || l.kind == 'd'):
		l.precision = -1
		return l.integer(v.(int), 10)
	case isWhole && (l.kind == 'x' || l.kind == 'X' || l.kind == 'o'):
		return l.integer(v.(int), map[byte]int{'x': 16, 'X': 16, 'o': 8}[l.kind])
	case strings.IndexByte("eEfFgG", l.kind) >= 0 && l.kind != 0:
		return l.float(f)
	case l.kind == '%':
		l.kind = 'f'
		width := l.width
		l.width = -1
		text := l.float(100*f) + "%"
		l.width = width
		return l.pad(text, "")
	}
	unsupported("the format " + strconv.Quote(how) + " of a " + typeName(v))
	return ""
}

func parseLayout(how string) layout {
	l := layout{fill: ' ', width: -1, precision: -1}
	r := []rune(how)
	isAlign := func(c rune) bool { return strings.ContainsRune("<>^=", c) }
	switch {
	case len(r) > 1 && isAlign(r[1]):
		l.fill, l.align, r = r[0], byte(r[1]), r[2:]
	case len(r) > 0 && isAlign(r[0]):
		l.align, r = byte(r[0]), r[1:]
	}
	take := func(set string) (c byte) {
		if len(r) > 0 && r[0] < 0x80 && strings.ContainsRune(set, r[0]) {
			c, r = byte(r[0]), r[1:]
		}
		return c
	}
	if s := take("+- "); s != '-' {
		l.sign = s
	}
	l.alternate, l.zero = take("#") != 0, take("0") != 0
	number := func() int {
		n := -1
		for d := take("0123456789"); d != 0; d = take("0123456789") {
			n = l.within(10*max(n, 0) + int(d-'0'))
		}
		return n
	}
	l.width = number()
	l.comma = take(",") != 0
	if take(".") != 0 {
		l.precision = number()
	}
	if len(r) == 1 && r[0] < 0x80 {
		l.kind, r = byte(r[0]), nil
	}
	if len(r) > 0 {
		unsupported("the format " + strconv.Quote(how))
	}
	return l
}
