package optest

import (
	"context"
	"errors"
	"math/bits"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

// TestCheck: a device that is right passes, one that has a mistake fails by the case's name, and
// there has to be time for a case of each kind.
func TestCheck(t *testing.T) {
	oracle := new(Oracle)
	opt := Options{Oracle: oracle, Skip: func(c Case) bool { return c.Kind == tensorops.KindMatMul && c.effort() > 0 }}
	kinds := len(kindsOf(Cases(opt)))
	few := opt
	few.Most = kinds + 3
	tally, err := Check(t.Context(), ref.New(), few)
	if err != nil || tally.Cases != kinds+3 || tally.Of != kinds+3 || tally.Refused != 0 {
		t.Errorf("%+v, %v; there are %d kinds", tally, err, kinds)
	}
	seen := make(map[tensorops.Kind]bool)
	for _, c := range turns(Cases(opt))[:kinds] {
		if seen[c.Kind] {
			t.Errorf("a second case of %v, %s, comes before the first of others", c.Kind, c.Name)
		}
		seen[c.Kind] = true
	}

	broken := changed{ref.New(), func(op *tensorops.Op) {
		if op.Kind == tensorops.KindRoPE {
			op.Flags ^= tensorops.FlagInverse
		}
	}}
	if tally, err := Check(t.Context(), broken, few); err == nil || !strings.Contains(err.Error(), "case rope/") || tally.Cases == 0 {
		t.Errorf("a mistake: %+v, %v", tally, err)
	}
	calls := 0
	fickle := changed{ref.New(), func(op *tensorops.Op) {
		if op.Kind == tensorops.KindDropout {
			calls++
			if bits.OnesCount(uint(calls))%2 == 1 { // which no period hides
				op.F[0] *= 1 + 3e-7 // of no tolerance's concern
			}
		}
	}}
	if _, err := Check(t.Context(), fickle,
		Options{Oracle: oracle, Skip: func(c Case) bool { return c.Kind != tensorops.KindDropout }}); err == nil {
		t.Error("other bits in a second run pass")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if tally, err := Check(ctx, ref.New(), few); !errors.Is(err, context.Canceled) || tally.Cases != 0 {
		t.Errorf("interrupted: %+v, %v", tally, err)
	}
	deaf := refusing{ref.New()}
	if tally, err := Check(t.Context(), deaf, few); err == nil || tally.Cases != 0 || tally.Refused != kinds+3 {
		t.Errorf("a device that knows nothing: %+v, %v", tally, err)
	}
}

// changed is the oracle with operations changed.
type changed struct {
	tensorops.Device
	change func(*tensorops.Op)
}

func (d changed) NewStream(name string) tensorops.Stream {
	return saboteur{d.Device.NewStream(name), d.change}
}

// refusing is a device that knows no operation.
type refusing struct{ tensorops.Device }

func (d refusing) NewStream(name string) tensorops.Stream {
	return deafStream{d.Device.NewStream(name)}
}

type deafStream struct{ tensorops.Stream }

func (s deafStream) Submit(l *tensorops.List, done func(error)) {
	l.Complete()
	done(tensorops.ErrUnsupported)
}
