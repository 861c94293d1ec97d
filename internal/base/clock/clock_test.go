package clock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
)

// TestStep: a clock that was set moves what it says of now, and of moments before by as much.
func TestStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moment, was := time.Now(), clock.Now()
		time.Sleep(3 * time.Second)
		clock.Step(-time.Hour)
		defer clock.Step(time.Hour)
		if now := clock.Now(); now.Sub(was) != 3*time.Second-time.Hour {
			t.Errorf("an hour back it is %v, it was %v", now, was)
		}
		if age := clock.Now().Sub(clock.At(moment)); age != 3*time.Second {
			t.Errorf("a moment 3 s ago was %v ago", age)
		}
	})
}
