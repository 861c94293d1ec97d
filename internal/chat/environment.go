package chat

import (
	"fmt"
	"math"
	"time"

	strf "github.com/ncruces/go-strftime"
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// environment is what templates can call, besides what is computed by tree.
func environment() *exec.Environment {
	named := make(map[string]exec.FilterFunction) // for the statement filter
	for name := range filters {
		named[name] = func(e *exec.Evaluator, in *exec.Value, args *exec.VarArgs) *exec.Value {
			c := &call{b: of(e.Environment.Context), name: name, kw: make(map[string]any)}
			for _, v := range args.Args {
				c.args = append(c.args, plainValue(v))
			}
			for key, v := range args.KwArgs {
				c.kw[key] = plainValue(v)
			}
			return exec.AsValue(filtered(plainValue(in), c))
		}
	}
	c := exec.EmptyContext()
	for _, name := range []string{"namespace"} {
		if f, ok := builtins.GlobalFunctions.Get(name); ok {
			c.Set(name, f)
		}
	}
	c.Update(builtins.GlobalVariables)
	c.Set("range", numbers)
	c.Set("none", null)
	for _, name := range []string{"cycler", "joiner", "lipsum"} {
		c.Set(name, func(*exec.VarArgs) (any, error) { unsupported(name); return nil, nil })
	}
	c.Set(pickName, pick)
	c.Set(keepName, keep)
	c.Set(sameName, same)
	c.Set("raise_exception", raise)
	return &exec.Environment{
		Context: c, Filters: exec.NewFilterSet(named), Tests: exec.NewTestSet(map[string]exec.TestFunction{}), ControlStructures: structures(),
		Methods: builtins.Methods,
	}
}

// raise is raise_exception: the template refuses the conversation.
func raise(e *exec.Evaluator, args *exec.VarArgs) (any, error) {
	text := "no reason given"
	if len(args.Args) > 0 {
		text = args.Args[0].String()
	}
	err := raisedError(text)
	of(e.Environment.Context).raised = err
	return nil, err
}

// numbers is range(), whose numbers count as steps.
func numbers(e *exec.Evaluator, args *exec.VarArgs) (pyRange, error) {
	var n []int
	for _, a := range args.Args {
		if !a.IsInteger() {
			failf("range takes integers, not %s", typeName(plainValue(a)))
		}
		n = append(n, a.Integer())
	}
	if len(n) < 1 || len(n) > 3 {
		failf("range takes 1 to 3 numbers, not %d", len(n))
	}
	from, to, by := 0, n[0], 1
	if len(n) > 1 {
		from, to = n[0], n[1]
	}
	if len(n) > 2 {
		by = n[2]
	}
	if by == 0 {
		failf("range has a step of 0")
	}
	count := math.Ceil((float64(to) - float64(from)) / float64(by))
	if count > maxRange {
		panic(limitError(fmt.Sprintf("range has %.0f numbers; the limit is %d", count, maxRange)))
	}
	list := make([]any, 0, max(0, int(count)))
	for i := range cap(list) {
		list = append(list, from+i*by)
	}
	of(e.Environment.Context).spend(len(list))
	return pyRange{from, to, by, list}, nil
}

// strftime is strftime_now at one time.
func strftime(now time.Time) func(format string) (string, error) {
	return func(format string) (string, error) {
		if len(format) > maxTimes {
			return "", fmt.Errorf("the format of a time has %d bytes; the limit is %d", len(format), maxTimes)
		}
		return strf.Format(format, now), nil
	}
}
