package chat

import (
	"slices"
)

// call is a filter, a test or a method with its arguments.
type call struct {
	b    *budget
	name string
	args []any
	kw   map[string]any
}

// bind returns the arguments by the names of the parameters, without missing ones.
func (c *call) bind(parameters ...string) map[string]any {
	if len(c.args) > len(parameters) {
		failf("%s takes at most %d arguments, not %d", c.name, len(parameters), len(c.args))
	}
	bound := make(map[string]any, len(parameters))
	for i, v := range c.args {
		bound[parameters[i]] = v
	}
	for name, v := range c.kw {
		if _, twice := bound[name]; twice || !slices.Contains(parameters, name) {
			failf("%s has no argument %q, or got it twice", c.name, name)
		}
		bound[name] = v
	}
	return bound
}

// need returns n arguments, all of which must be given.
func (c *call) need(n int) []any {
	if len(c.args) != n || len(c.kw) > 0 {
		failf("%s takes %d arguments, not %d", c.name, n, len(c.args)+len(c.kw))
	}
	return c.args
}

func (c *call) text(v any) string {
	s, ok := v.(string)
	if !ok {
		failf("%s takes a str, not %s", c.name, typeName(v))
	}
	return s
}

func (c *call) number(v any) int {
	n, _, whole, ok := numeric(v)
	if !ok || !whole {
		failf("%s takes an int, not %s", c.name, typeName(v))
	}
	return n
}

// or returns an argument, or the default.
func or(bound map[string]any, name string, otherwise any) any {
	if v, ok := bound[name]; ok {
		return v
	}
	return otherwise
}
