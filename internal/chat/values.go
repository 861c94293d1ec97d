package chat

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Values of templates are those of Python, which the library does not have: nil is what is not defined, none is None,
// and beside bool, int, float64, string, []any and *exec.Dict there are these.
type (
	tuple    []any
	dictView struct { // what keys(), values() and items() return
		name  string
		items []any
	}
	pyRange struct {
		from, to, by int
		items        []any
	}
	// generator gives its items once, as those of map, select and the like do.
	generator struct{ items []any }
)

// fault ends a rendering as an exception of Python's does.
type fault string

func (f fault) Error() string { return string(f) }

func failf(format string, args ...any) { panic(fault(fmt.Sprintf(format, args...))) }

// unsupported ends a rendering that needs what is not here.
func unsupported(what string) { failf("%s is not supported", what) }

// plain is a value without the library's wrapping.
func plainValue(v any) any {
	switch x := v.(type) {
	case *exec.Value:
		if x == nil {
			return nil
		}
		if x.IsError() {
			failf("%s", shorter(x.Error()))
		}
		return plainValue(x.Interface())
	case reflect.Value:
		return plainValue(exec.ToValue(x).Interface())
	case nil, none, bool, int, float64, string, []any, tuple, *exec.Dict, dictView, pyRange, *generator:
		return v
	case exec.ValuesList:
		list := make([]any, len(x))
		for i := range x {
			list[i] = plainValue(x[i])
		}
		return list
	case exec.Dict:
		return &x
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Slice, reflect.Array:
		list := make([]any, r.Len())
		for i := range list {
			list[i] = plainValue(r.Index(i).Interface())
		}
		return list
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return int(r.Int())
	case reflect.Float32:
		return r.Float()
	case reflect.String:
		return r.String()
	}
	return v
}

const shortBytes = 300

// shorter is an error of the library's, which quotes whole templates.
func shorter(text string) string {
	if len(text) > shortBytes {
		return text[:shortBytes] + "…"
	}
	return text
}

// typeName is what Python calls a value's type.
func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "Undefined"
	case none:
		return "NoneType"
	case bool:
		return "bool"
	case int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case []any:
		return "list"
	case tuple:
		return "tuple"
	case *exec.Dict:
		return "dict"
	case dictView:
		return "dict view"
	case pyRange:
		return "range"
	case *generator:
		return "generator"
	}
	return "object"
}

// listOf are the elements of what can be indexed by number, but for texts.
func listOf(v any) ([]any, bool) {
	switch x := v.(type) {
	case []any:
		return x, true
	case tuple:
		return x, true
	case pyRange:
		return x.items, true
	}
	return nil, false
}

// iterate are the elements that a loop over a value sees.
func iterate(v any) []any {
	switch x := v.(type) {
	case nil:
		return nil
	case string:
		list := make([]any, 0, len(x))
		for _, r := range x {
			list = append(list, string(r))
		}
		return list
	case *exec.Dict:
		list := make([]any, len(x.Pairs))
		for i, p := range x.Pairs {
			list[i] = plainValue(p.Key)
		}
		return list
	case dictView:
		return x.items
	case *generator:
		items := x.items
		x.items = nil
		return items
	case map[string]any:
		unsupported("a loop over a namespace")
	}
	list, ok := listOf(v)
	if !ok {
		failf("a %s is not iterable", typeName(v))
	}
	return list
}

// length is len().
func length(v any) int {
	switch x := v.(type) {
	case nil:
		return 0
	case string:
		return len([]rune(x))
	case *exec.Dict:
		return len(x.Pairs)
	case dictView:
		return len(x.items)
	}
	list, ok := listOf(v)
	if !ok {
		failf("object of type %q has no len()", typeName(v))
	}
	return len(list)
}

// truth is bool().
func truth(v any) bool {
	switch x := v.(type) {
	case nil, none:
		return false
	case bool:
		return x
	case int:
		return x != 0
	case float64:
		return x != 0
	case string, []any, tuple, *exec.Dict, dictView, pyRange:
		return length(x) > 0
	}
	return true
}

// numeric is a value as a number: whole, or not.
func numeric(v any) (i int, f float64, whole, ok bool) {
	switch x := v.(type) {
	case bool:
		if x {
			i = 1
		}
		return i, float64(i), true, true
	case int:
		return x, float64(x), true, true
	case float64:
		return 0, x, false, true
	}
	return 0, 0, false, false
}

// equal is ==.
func equal(a, b any) bool {
	ai, af, aWhole, aOK := numeric(a)
	bi, bf, bWhole, bOK := numeric(b)
	if aOK || bOK {
		if aOK && bOK && aWhole && bWhole {
			return ai == bi
		}
		return aOK && bOK && af == bf
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case none:
		_, is := b.(none)
		return is
	case string:
		y, is := b.(string)
		return is && x == y
	case []any:
		y, is := b.([]any)
		return is && equalLists(x, y)
	case tuple:
		y, is := b.(tuple)
		return is && equalLists(x, y)
	case pyRange:
		y, is := b.(pyRange)
		return is && equalLists(x.items, y.items)
	case *exec.Dict:
		y, is := b.(*exec.Dict)
		if !is || len(x.Pairs) != len(y.Pairs) {
			return false
		}
		for _, p := range x.Pairs {
			v, ok := lookup(y, plainValue(p.Key))
			if !ok || !equal(plainValue(p.Value), v) {
				return false
			}
		}
		return true
	}
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.TypeOf(a).Comparable() && a == b
}

func equalLists(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !equal(plainValue(a[i]), plainValue(b[i])) {
			return false
		}
	}
	return true
}

// hashable refuses what can be no key of a dict.
func hashable(key any) {
	switch x := key.(type) {
	case []any, *exec.Dict:
		failf("unhashable type: '%s'", typeName(key))
	case tuple:
		for _, one := range x {
			hashable(plainValue(one))
		}
	}
}

// lookup finds a key of a dict.
func lookup(d *exec.Dict, key any) (any, bool) {
	for _, p := range d.Pairs {
		if equal(plainValue(p.Key), key) {
			return plainValue(p.Value), true
		}
	}
	return nil, false
}

// order is the sign of a − b, where Python knows an order.
func order(op string, a, b any) int {
	ai, af, aWhole, aOK := numeric(a)
	bi, bf, bWhole, bOK := numeric(b)
	if aOK && bOK {
		if aWhole && bWhole {
			if ai < bi {
				return -1
			}
			return map[bool]int{true: 1}[ai > bi]
		}
		switch {
		case af < bf:
			return -1
		case af > bf:
			return 1
		}
		return 0
	}
	if x, is := a.(string); is {
		if y, is := b.(string); is {
			return strings.Compare(x, y)
		}
	}
	x, isList := a.([]any)
	y, both := b.([]any)
	if !isList || !both {
		var xt, yt tuple
		if xt, isList = a.(tuple); isList {
			yt, both = b.(tuple)
		}
		x, y = xt, yt
	}
	if !isList || !both {
		if a == nil || b == nil {
			failf("an undefined value is compared with %s", op)
		}
		failf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
	for i := range min(len(x), len(y)) {
		if p, q := plainValue(x[i]), plainValue(y[i]); !equal(p, q) {
			return order(op, p, q)
		}
	}
	return len(x) - len(y)
}

// contains is "in".
func contains(in, v any) bool {
	switch x := in.(type) {
	case string:
		s, ok := v.(string)
		if !ok {
			failf("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(x, s)
	case *exec.Dict:
		hashable(v)
		_, ok := lookup(x, v)
		return ok
	case none, bool, int, float64:
		failf("argument of type '%s' is not iterable", typeName(in))
	}
	for _, one := range iterate(in) {
		if equal(plainValue(one), v) {
			return true
		}
	}
	return false
}

// str is str().
func str(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	}
	return repr(v)
}

// repr is repr().
func repr(v any) string {
	var b strings.Builder
	writeRepr(&b, v, 0)
	return b.String()
}

const deepest = 100 // values in one another

func writeRepr(b *strings.Builder, v any, depth int) {
	if depth > deepest {
		failf("a value is nested more than %d deep", deepest)
	}
	list := func(open string, items []any, end string) {
		b.WriteString(open)
		for i, one := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, plainValue(one), depth+1)
		}
		b.WriteString(end)
	}
	switch x := v.(type) {
	case nil:
		b.WriteString("Undefined")
	case none:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[x])
	case int:
		b.WriteString(strconv.Itoa(x))
	case float64:
		b.WriteString(floatText(x))
	case string:
		quote(b, x)
	case []any:
		list("[", x, "]")
	case tuple:
		list("(", x, map[bool]string{true: ",)", false: ")"}[len(x) == 1])
	case dictView:
		list(x.name+"([", x.items, "])")
	case pyRange:
		fmt.Fprintf(b, "range(%d, %d", x.from, x.to)
		if x.by != 1 {
			fmt.Fprintf(b, ", %d", x.by)
		}
		b.WriteString(")")
	case *exec.Dict:
		b.WriteString("{")
		for i, p := range x.Pairs {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, plainValue(p.Key), depth+1)
			b.WriteString(": ")
			writeRepr(b, plainValue(p.Value), depth+1)
		}
		b.WriteString("}")
	case *generator:
		unsupported("printing a generator, such as that of map or items without list,")
	default:
		unsupported("printing a function or a namespace")
	}
}

// floatText is repr() of a float.
func floatText(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	case x == 0 || math.Abs(x) >= 1e-4 && math.Abs(x) < 1e16:
		text := strconv.FormatFloat(x, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	return strconv.FormatFloat(x, 'e', -1, 64)
}

// quote is repr() of a text.
func quote(b *strings.Builder, s string) {
	mark := '\''
	if strings.ContainsRune(s, '\'') && !strings.ContainsRune(s, '"') {
		mark = '"'
	}
	b.WriteRune(mark)
	for _, r := range s {
		switch {
		case r == mark || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteRune(mark)
}
