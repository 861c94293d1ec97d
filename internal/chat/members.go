package chat

import (
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// member is v.name: a member of a dict, or of what the library has. Methods are there to be called.
func member(v any, name string) any {
	switch x := v.(type) {
	case *exec.Dict:
		if isMethod(v, name) {
			unsupported("the method " + name + " of a dict without a call")
		}
		found, _ := lookup(x, name)
		return found
	case none, bool, int, float64, string, []any, tuple, dictView, pyRange, *generator:
		if isMethod(v, name) {
			unsupported("the method " + name + " of a " + typeName(v) + " without a call")
		}
		return nil
	}
	return foreign(v, name)
}

// isMethod reports whether Python has a method of this name.
func isMethod(v any, name string) bool {
	switch v.(type) {
	case string:
		return stringMethods[name] != nil
	case *exec.Dict:
		switch name {
		case "keys", "values", "items", "get", "copy", "pop", "popitem", "clear", "setdefault", "update", "fromkeys":
			return true
		}
	case []any, tuple:
		return name == "count" || name == "index" || unsafeMethods[name] || name == "copy"
	}
	return false
}

// foreign is a member of a namespace, of a loop or of another value of the library's.
func foreign(v any, name string) any {
	of := exec.AsValue(v)
	if found, ok := of.GetAttribute(name); ok {
		return plainValue(found)
	}
	if found, ok := of.GetItem(name); ok {
		return plainValue(found)
	}
	return nil
}

// item is v[at].
func item(v, at any) any {
	switch x := v.(type) {
	case nil:
		failf("a member of an undefined value")
	case *exec.Dict:
		found, ok := lookup(x, at)
		if name, isName := at.(string); !ok && isName && isMethod(v, name) {
			unsupported("the method " + name + " of a dict without a call")
		}
		return found
	case string, []any, tuple, pyRange:
		n, _, whole, ok := numeric(at)
		if !ok || !whole {
			if name, isName := at.(string); isName && isMethod(v, name) {
				unsupported("the method " + name + " of a " + typeName(v) + " without a call")
			}
			return nil
		}
		list, isList := listOf(v)
		if !isList {
			list = iterate(v)
		}
		if n < 0 {
			n += len(list)
		}
		if n < 0 || n >= len(list) {
			return nil
		}
		return plainValue(list[n])
	case none, bool, int, float64, dictView, *generator:
		return nil
	}
	if name, ok := at.(string); ok {
		return foreign(v, name)
	}
	return nil
}

// sliced is v[from:to:by].
func sliced(v, from, to, by any) any {
	list, isList := listOf(v)
	text, isText := v.(string)
	if isText {
		list = iterate(text)
	} else if !isList {
		unsupported("a slice of a " + typeName(v))
	}
	step := 1
	bound := func(b any, otherwise int) int {
		if b == any(null) {
			return otherwise
		}
		n, _, whole, ok := numeric(b)
		if !ok || !whole {
			failf("slice indices must be integers or None, not %s", typeName(b))
		}
		if n < 0 {
			n += len(list)
		}
		if step < 0 {
			return min(max(n, -1), len(list)-1)
		}
		return min(max(n, 0), len(list))
	}
	if by != any(null) {
		n, ok := by.(int)
		if !ok || n == 0 {
			failf("slice step must be an int other than zero")
		}
		step = n
	}
	part := []any{}
	if step > 0 {
		for i, end := bound(from, 0), bound(to, len(list)); i < end; i += min(step, len(list)) {
			part = append(part, list[i])
		}
	} else {
		for i, end := bound(from, len(list)-1), bound(to, -1); i > end; i += max(step, -len(list)) {
			part = append(part, list[i])
		}
	}
	switch v.(type) {
	case string:
		var b strings.Builder
		for _, r := range part {
			b.WriteString(r.(string))
		}
		return b.String()
	case tuple:
		return tuple(part)
	case pyRange:
		unsupported("a slice of a range")
	}
	return part
}
