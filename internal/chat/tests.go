package chat

import (
	"reflect"
	"strconv"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// tests are Jinja's. Others are refused by name.
var tests = map[string]func(v any, c *call) bool{
	"defined":   func(v any, c *call) bool { c.need(0); return v != nil },
	"undefined": func(v any, c *call) bool { c.need(0); return v == nil },
	"none":      kind(func(v any) bool { _, ok := v.(none); return ok }),
	"boolean":   kind(func(v any) bool { _, ok := v.(bool); return ok }),
	"true":      kind(func(v any) bool { return v == any(true) }),
	"false":     kind(func(v any) bool { return v == any(false) }),
	"integer":   kind(func(v any) bool { _, ok := v.(int); return ok }),
	"float":     kind(func(v any) bool { _, ok := v.(float64); return ok }),
	"number":    kind(func(v any) bool { _, _, _, ok := numeric(v); return ok }),
	"string":    kind(func(v any) bool { _, ok := v.(string); return ok }),
	"mapping":   kind(func(v any) bool { _, ok := v.(*exec.Dict); return ok }),
	"callable": kind(func(v any) bool {
		return v != nil && reflect.TypeOf(v).Kind() == reflect.Func
	}),
	"sequence": kind(func(v any) bool {
		switch v.(type) {
		case nil, string, *exec.Dict:
			return true
		}
		_, ok := listOf(v)
		return ok
	}),
	"iterable": kind(func(v any) bool {
		switch v.(type) {
		case nil, string, *exec.Dict, dictView, *generator:
			return true
		}
		_, ok := listOf(v)
		return ok
	}),
	"odd":  func(v any, c *call) bool { c.need(0); return equal(binary(c.b, "%", v, 2), 1) },
	"even": func(v any, c *call) bool { c.need(0); return equal(binary(c.b, "%", v, 2), 0) },
	"divisibleby": func(v any, c *call) bool {
		return equal(binary(c.b, "%", v, c.need(1)[0]), 0)
	},
	"lower": func(v any, c *call) bool { c.need(0); return truth(stringMethods["islower"](str(v), c)) },
	"upper": func(v any, c *call) bool { c.need(0); return truth(stringMethods["isupper"](str(v), c)) },
	"in":    func(v any, c *call) bool { return contains(c.need(1)[0], v) },
	"sameas": func(v any, c *call) bool {
		other := c.need(1)[0]
		if typeName(v) != typeName(other) {
			return false
		}
		switch v.(type) {
		case nil, none, bool, int:
			return equal(v, other)
		}
		unsupported("sameas of a " + typeName(v))
		return false
	},
}

func init() {
	for _, op := range []struct {
		is    string
		names []string
	}{
		{"==", []string{"eq", "equalto", "=="}}, {"!=", []string{"ne", "!="}}, {"<", []string{"lt", "lessthan", "<"}},
		{"<=", []string{"le", "<="}}, {">", []string{"gt", "greaterthan", ">"}}, {">=", []string{"ge", ">="}},
	} {
		for _, name := range op.names {
			tests[name] = func(v any, c *call) bool { return truth(binary(c.b, op.is, v, c.need(1)[0])) }
		}
	}
}

func kind(is func(v any) bool) func(v any, c *call) bool {
	return func(v any, c *call) bool { c.need(0); return is(v) }
}

// tested calls a test by its name.
func tested(v any, c *call) bool {
	t, ok := tests[c.name]
	if !ok {
		unsupported("the test " + strconv.Quote(c.name))
	}
	return t(v, c)
}
