package chat

import (
	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// none is Python's None, and JSON's null. The library has one nil for that and for what is not
// defined, which templates tell apart: None prints as "None", is defined, and is none. A channel
// without values, as the library sees it, is a value that is false.
type none chan struct{}

// null is the one value of none. It is closed, for the library waits for what a channel holds.
var null = func() none {
	c := make(none)
	close(c)
	return c
}()

func (none) String() string { return "None" }

// isNone reports whether a value is None or not defined.
func isNone(v *exec.Value) bool {
	_, is := v.Interface().(none)
	return is || v.IsNil()
}

// tests are the library's, of which "none" knows None alone.
func tests() *exec.TestSet {
	set := exec.NewTestSet(map[string]exec.TestFunction{}).Update(builtins.Tests)
	_ = set.Replace("none", func(_ *exec.Context, in *exec.Value, _ *exec.VarArgs) (bool, error) {
		_, is := in.Interface().(none)
		return is, nil
	}) // which is there, and TestNames says so
	return set
}
