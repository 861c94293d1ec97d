package chat

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// The methods of Python's strings, lists and dicts that templates use. The library has most of
// them, but with other defaults: lstrip of spaces alone, a replace that must be told how often,
// a split by another count.

// stringMethods are those of texts.
var stringMethods = exec.NewMethodSet(withBuiltins(map[string]exec.Method[string]{
	"strip": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		return trim(s, a, strings.Trim, strings.TrimFunc)
	},
	"lstrip": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		return trim(s, a, strings.TrimLeft, strings.TrimLeftFunc)
	},
	"rstrip": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		return trim(s, a, strings.TrimRight, strings.TrimRightFunc)
	},
	"split":      func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return split(s, a, false) },
	"rsplit":     func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return split(s, a, true) },
	"replace":    func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return replace(s, a) },
	"startswith": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return affix(s, a, strings.HasPrefix) },
	"endswith":   func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) { return affix(s, a, strings.HasSuffix) },
	"find": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		sub, err := only(a)
		at := strings.Index(s, sub)
		if at >= 0 {
			at = len([]rune(s[:at]))
		}
		return at, err
	},
	"rfind": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		sub, err := only(a)
		at := strings.LastIndex(s, sub)
		if at >= 0 {
			at = len([]rune(s[:at]))
		}
		return at, err
	},
	"count": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		sub, err := only(a)
		return strings.Count(s, sub), err
	},
	"partition": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		sep, err := only(a)
		before, after, found := strings.Cut(s, sep)
		if !found {
			sep = ""
		}
		return []any{before, sep, after}, err
	},
	"join": func(s string, _ *exec.Value, a *exec.VarArgs) (any, error) {
		if len(a.Args) != 1 || !a.Args[0].IsIterable() {
			return nil, exec.ErrInvalidCall(errors.New("join takes a list"))
		}
		var parts []string
		a.Args[0].Iterate(func(_, _ int, key, _ *exec.Value) bool { parts = append(parts, key.String()); return true }, func() {})
		return strings.Join(parts, s), nil
	},
}, builtins.Methods.Str, "capitalize", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "isupper",
	"lower", "removeprefix", "removesuffix", "splitlines", "title", "upper"))

// listMethods are those of lists.
var listMethods = exec.NewMethodSet(withBuiltins(nil, builtins.Methods.List, "append", "reverse", "copy"))

// dictMethods are those of dicts. The library's see a copy without an order.
var dictMethods = exec.NewMethodSet(map[string]exec.Method[map[string]any]{
	"items": func(_ map[string]any, d *exec.Value, _ *exec.VarArgs) (any, error) { return items(d), nil },
	"keys": func(_ map[string]any, d *exec.Value, _ *exec.VarArgs) (any, error) {
		list := []any{}
		for _, p := range pairs(d) {
			list = append(list, p.Key.Interface())
		}
		return list, nil
	},
	"values": func(_ map[string]any, d *exec.Value, _ *exec.VarArgs) (any, error) {
		list := []any{}
		for _, p := range pairs(d) {
			list = append(list, p.Value.Interface())
		}
		return list, nil
	},
	"get": func(_ map[string]any, d *exec.Value, a *exec.VarArgs) (any, error) {
		if len(a.Args) < 1 || len(a.Args) > 2 {
			return nil, exec.ErrInvalidCall(fmt.Errorf("get takes a key and a default, not %d values", len(a.Args)))
		}
		for _, p := range pairs(d) {
			if p.Key.EqualValueTo(a.Args[0]) {
				return p.Value.Interface(), nil
			}
		}
		if len(a.Args) == 2 {
			return a.Args[1].Interface(), nil
		}
		return null, nil
	},
})

// withBuiltins adds methods of the library.
func withBuiltins[T any](own map[string]exec.Method[T], builtin *exec.MethodSet[T], names ...string) map[string]exec.Method[T] {
	if own == nil {
		own = make(map[string]exec.Method[T])
	}
	for _, name := range names {
		if m, ok := builtin.Get(name); ok {
			own[name] = m
		}
	}
	return own
}

// only is the one argument that a method takes, a text.
func only(a *exec.VarArgs) (string, error) {
	if len(a.Args) != 1 || !a.Args[0].IsString() {
		return "", exec.ErrInvalidCall(fmt.Errorf("it takes one text, not %d values", len(a.Args)))
	}
	return a.Args[0].String(), nil
}

// trim is strip, lstrip or rstrip: of these characters, or of white space.
func trim(s string, a *exec.VarArgs, these func(s, cut string) string, white func(s string, f func(rune) bool) string) (any, error) {
	if len(a.Args) == 0 || isNone(a.Args[0]) {
		return white(s, space), nil
	}
	cut, err := only(a)
	return these(s, cut), err
}

// space is Python's str.isspace.
func space(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// split is split or rsplit: at a separator, at most so many times, or at runs of white space.
func split(s string, a *exec.VarArgs, right bool) (any, error) {
	sep, most := "", -1
	args := append([]*exec.Value{}, a.Args...)
	for i, name := range []string{"sep", "maxsplit"} {
		if v, ok := a.KwArgs[name]; ok {
			for len(args) <= i {
				args = append(args, exec.AsValue(nil))
			}
			args[i] = v
		}
	}
	if len(args) > 0 && !isNone(args[0]) {
		if sep = args[0].String(); sep == "" {
			return nil, exec.ErrInvalidCall(errors.New("split at an empty text"))
		}
	}
	if len(args) > 1 {
		most = args[1].Integer()
	}
	var parts []string
	switch {
	case sep == "" && most < 0:
		parts = strings.FieldsFunc(s, space)
	case sep == "":
		return nil, exec.ErrInvalidCall(errors.New("split at white space a number of times is not supported"))
	case right && most >= 0:
		for range most {
			at := strings.LastIndex(s, sep)
			if at < 0 {
				break
			}
			parts = append(parts, s[at+len(sep):])
			s = s[:at]
		}
		parts = append(parts, s)
		for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
			parts[i], parts[j] = parts[j], parts[i]
		}
	case most < 0:
		parts = strings.Split(s, sep)
	default:
		parts = strings.SplitN(s, sep, most+1)
	}
	list := make([]any, len(parts))
	for i, p := range parts {
		list[i] = p
	}
	return list, nil
}

// replace is replace(old, new[, count]), whose result may not grow beyond a variable's limit.
func replace(s string, a *exec.VarArgs) (any, error) {
	if len(a.Args) < 2 || len(a.Args) > 3 {
		return nil, exec.ErrInvalidCall(fmt.Errorf("replace takes a text, another one and a count, not %d values", len(a.Args)))
	}
	from, to, times := a.Args[0].String(), a.Args[1].String(), strings.Count(s, a.Args[0].String())
	if len(a.Args) == 3 && a.Args[2].Integer() >= 0 {
		times = min(times, a.Args[2].Integer())
	}
	if grown := float64(times)*float64(len(to)-len(from)) + float64(len(s)); grown > maxVariableBytes {
		panic(limitError(fmt.Sprintf("a replacement makes %.0f bytes, more than %d", grown, maxVariableBytes)))
	}
	return strings.Replace(s, from, to, times), nil
}

// affix is startswith or endswith, of a text or of one of several.
func affix(s string, a *exec.VarArgs, has func(s, affix string) bool) (any, error) {
	if len(a.Args) != 1 {
		return nil, exec.ErrInvalidCall(fmt.Errorf("it takes a text or several, not %d values", len(a.Args)))
	}
	if a.Args[0].IsString() {
		return has(s, a.Args[0].String()), nil
	}
	found := false
	a.Args[0].Iterate(func(_, _ int, key, _ *exec.Value) bool {
		found = found || has(s, key.String())
		return !found
	}, func() {})
	return found, nil
}
