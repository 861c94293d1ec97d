package chat

import (
	"fmt"
	"math"
	"time"

	strf "github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// filters are those that templates may use besides their own here: none that could write much
// from little, or reads anything else.
var filters = []string{
	"abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "int", "join", "length", "list",
	"lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "safe", "select", "selectattr", "sort", "string",
	"sum", "title", "trim", "unique", "upper",
}

// environment is what templates can call.
func environment() *exec.Environment {
	own := map[string]exec.FilterFunction{
		"tojson": filterToJSON, "items": filterItems, "last": filterLast, "replace": filterReplace, "indent": filterIndent,
	}
	for _, name := range filters {
		if f, ok := builtins.Filters.Get(name); ok {
			own[name] = f
		}
	}
	c := exec.EmptyContext()
	for _, name := range []string{"namespace", "dict"} {
		if f, ok := builtins.GlobalFunctions.Get(name); ok {
			c.Set(name, f)
		}
	}
	c.Update(builtins.GlobalVariables)
	c.Set("range", numbers)
	c.Set("none", null)
	c.Set(pickName, pick)
	c.Set(keepName, keep)
	c.Set(sameName, same)
	c.Set("raise_exception", raise)
	return &exec.Environment{
		Context: c, Filters: exec.NewFilterSet(own), Tests: tests(), ControlStructures: structures(),
		Methods: exec.Methods{Bool: builtins.Methods.Bool, Int: builtins.Methods.Int, Float: builtins.Methods.Float, Str: stringMethods, Dict: dictMethods, List: listMethods},
	}
}

// raise is raise_exception: the template refuses the conversation.
func raise(e *exec.Evaluator, args *exec.VarArgs) (any, error) {
	text := "it gives no reason"
	if len(args.Args) > 0 {
		text = args.Args[0].String()
	}
	err := raisedError(text)
	of(e.Environment.Context).raised = err
	return nil, err
}

// numbers is range(), whose numbers count as steps.
func numbers(e *exec.Evaluator, args *exec.VarArgs) ([]int, error) {
	var n []int
	for _, a := range args.Args {
		if !a.IsInteger() {
			return nil, exec.ErrInvalidCall(fmt.Errorf("range takes whole numbers, not %q", a.String()))
		}
		n = append(n, a.Integer())
	}
	if len(n) < 1 || len(n) > 3 {
		return nil, exec.ErrInvalidCall(fmt.Errorf("range takes 1 to 3 numbers, not %d", len(n)))
	}
	from, to, by := 0, n[0], 1
	if len(n) > 1 {
		from, to = n[0], n[1]
	}
	if len(n) > 2 {
		by = n[2]
	}
	if by == 0 {
		return nil, exec.ErrInvalidCall(fmt.Errorf("range by steps of 0"))
	}
	count := math.Ceil((float64(to) - float64(from)) / float64(by))
	if count > maxRange {
		panic(limitError(fmt.Sprintf("a range of %.0f numbers, more than %d", count, maxRange)))
	}
	list := make([]int, 0, max(0, int(count)))
	for i := range cap(list) {
		list = append(list, from+i*by)
	}
	of(e.Environment.Context).spend(len(list))
	return list, nil
}

// strftime is strftime_now at one time.
func strftime(now time.Time) func(format string) (string, error) {
	return func(format string) (string, error) {
		if len(format) > maxTimes {
			return "", fmt.Errorf("a format of %d bytes for a time, more than %d", len(format), maxTimes)
		}
		return strf.Format(format, now), nil
	}
}
