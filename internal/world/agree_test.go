package world

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	worlds = flag.Int("worlds", manyWorlds, "how many random worlds TestAgree checks and runs")
	seed   = flag.Uint64("seed", 18, "of TestAgree")
)

// TestAgree: of 10,000 random worlds (fewer under the race detector), most with a mistake or several, the checker
// says what a real execution comes to:
// goroutines in groups of package collective, over bounded channels.
func TestAgree(t *testing.T) {
	kinds := make(map[error]int)
	synctest.Test(t, func(t *testing.T) {
		arena := tensorops.NewHostMemory(0).NewArena("worlds")
		defer arena.Close()
		for i := range *worlds {
			r := random{rand.New(rand.NewPCG(*seed, uint64(i)))}
			w, what := r.world(i % 4)
			kind := agree(t, w, execute(w, arena), fmt.Sprintf("world %d of seed %d (%s)", i, *seed, what))
			if i%4 == 0 && kind != nil {
				t.Fatalf("world %d of seed %d has no mistake, and the checker says: %v", i, *seed, kind)
			}
			kinds[kind]++
		}
	})
	t.Logf("%d worlds: %v", *worlds, kinds)
	for _, kind := range []error{nil, ErrWorld, ErrMismatch, ErrMixed, ErrMissing, ErrDeadlock} {
		if kinds[kind] < *worlds/100 {
			t.Errorf("%d of %d worlds end with %v: too few to tell", kinds[kind], *worlds, kind)
		}
	}
}

// TestAgreeAny is the same as a property, whose counterexamples rapid makes small.
func TestAgreeAny(t *testing.T) {
	arena := tensorops.NewHostMemory(0).NewArena("worlds")
	defer arena.Close()
	rapid.Check(t, func(rt *rapid.T) {
		r := random{rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), rapid.Uint64().Draw(rt, "stream")))}
		w, what := r.world(rapid.IntRange(0, 3).Draw(rt, "mistakes"))
		var got *outcome
		synctest.Test(t, func(*testing.T) { got = execute(w, arena) })
		_ = agree(rt, w, got, what) // any verdict
	})
}
