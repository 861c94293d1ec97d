// Package caught makes errors of panics in code that a program brings, such as a layer or a
// dataset, on one line and with the place. It imports the standard library alone.
package caught

import (
	"fmt"
	"path"
	"runtime"
	"strings"
)

// frames is how many callers an error shows.
const frames = 3

// Panic is the error of a panic, for the deferred function that has recovered v: the value, and
// the calls that led there, as far as to the function that defers.
func Panic(v any) error {
	if err, ok := v.(error); ok {
		return fmt.Errorf("panic: %w%s", err, where())
	}
	return fmt.Errorf("panic: %v%s", v, where())
}

// where is " (the panicking function file:line, called by …)".
func where() string {
	pcs := make([]uintptr, 64)
	all := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)]) // without Callers, where and Panic
	var catcher string
	var calls []string
	for more, thrown := true, false; more && len(calls) < frames; {
		var f runtime.Frame
		f, more = all.Next()
		inRuntime := strings.HasPrefix(f.Function, "runtime.")
		if catcher == "" {
			catcher, _, _ = strings.Cut(f.Function, ".func")
			continue
		}
		thrown = thrown || inRuntime
		if !thrown || inRuntime {
			continue
		}
		if f.Function == catcher {
			break
		}
		calls = append(calls, fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line))
	}
	if calls == nil {
		return ""
	}
	return " (" + strings.Join(calls, ", called by ") + ")"
}
