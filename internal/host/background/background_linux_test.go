package background

import (
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestDo(t *testing.T) {
	defer goleak.VerifyNone(t)
	priority := func() int { // of the calling thread, from 1, the lowest, to 40
		p, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			t.Error(err)
		}
		return p
	}
	before := priority()
	for range 8 {
		inside := 0
		Do(func() { inside = priority() })
		if inside != 1 {
			t.Errorf("the priority in Do is %d; want 1", inside)
		}
	}
	if after := priority(); after != before {
		t.Errorf("the priority of the caller's thread is %d; it was %d", after, before)
	}
}
