package testrun

import (
	"testing"

	"github.com/troupe-ml/troupe"
)

// Endless are keys for a run that only ends when it is stopped.
var Endless = []string{"run.steps=1000000", "run.checkpoint_every=0", "run.eval_every=0"}

// Until reads events up to the first one of type E for which ok returns true.
func Until[E troupe.Event](t *testing.T, run *troupe.Run, ok func(E) bool) E {
	t.Helper()
	for e := range run.Events() {
		if e, is := e.(E); is && ok(e) {
			return e
		}
	}
	_, err := run.Wait()
	t.Fatalf("the run ended before the event, with %v", err)
	panic("unreachable")
}

// Step is a condition for Until: step n or a later one has finished.
func Step(n int) func(troupe.StepEvent) bool {
	return func(e troupe.StepEvent) bool { return e.Step >= n }
}
