package caught

import (
	"errors"
	"strings"
	"testing"
)

var errOwn = errors.New("out of ideas")

func try(f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Panic(v)
		}
	}()
	f()
	return nil
}

func deeper(i int) { sink = [3]int{}[i] }

var (
	sink int
	none map[string]int
)

// TestPanic: an error says what was thrown and where, and no more.
func TestPanic(t *testing.T) {
	for _, c := range []struct {
		f    func()
		want string
		is   error
	}{
		{func() { panic(errOwn) }, "panic: out of ideas (caught.TestPanic.func1 caught_test.go:", errOwn},
		{func() { panic("no") }, "panic: no (caught.TestPanic.func2 caught_test.go:", nil},
		{func() { deeper(3) },
			"panic: runtime error: index out of range [3] with length 3 (caught.deeper caught_test.go:21, called by caught.TestPanic.func3 caught_test.go:", nil},
		{func() { none["a"] = 1 }, "panic: assignment to entry in nil map (caught.TestPanic.func4 caught_test.go:", nil},
	} {
		err := try(c.f)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") ||
			strings.Contains(err.Error(), "caught.try") || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("error %v, want %s…", err, c.want)
		}
	}
	if err := try(func() {}); err != nil {
		t.Error(err)
	}
}
