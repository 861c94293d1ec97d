package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/registry"
)

// TestSubmittedUnknown: the error tells names that only the client's program has registered from unknown names.
func TestSubmittedUnknown(t *testing.T) {
	text := []byte("[data]\ntrain = [\"a.txt\"]\n[pipeline]\nstages = 2\nschedule = \"mine\"\n")
	for _, c := range []struct {
		name       string
		registered []string
		want       string
		not        string
	}{
		{"it is the client's", []string{"layer other", "schedule mine"},
			"your program has registered schedule mine; the coordinator's has not (it has registered " +
				registry.List(registry.Names()) + "). Use the same program for both", // names of this test's packages
			"other"},
		{"nobody knows it", []string{"schedule other"}, "use one of none, gpipe", "other"},
		{"a client that says nothing", nil, "use one of none, gpipe", "registered"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parseSubmitted("own.toml", text, nil, c.registered, nil)
			var setup *troupe.SetupError
			if !errors.As(err, &setup) || !strings.Contains(err.Error(), c.want) || c.not != "" && strings.Contains(err.Error(), c.not) {
				t.Errorf("%v, want %q in it, and not %q", err, c.want, c.not)
			}
		})
	}
	if _, err := parseSubmitted("own.toml", text, nil, []string{"nonsense\n"}, nil); !errors.Is(err, ErrRequest) {
		t.Errorf("nonsense: %v", err)
	}
	if _, err := parseSubmitted("own.toml", []byte("[data]\ntrain = [\"a.txt\"]\n"), nil, []string{"schedule mine"}, nil); err != nil {
		t.Errorf("it does not use what the client's program has: %v", err)
	}
}
