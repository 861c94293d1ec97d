package config

import (
	"strings"
	"testing"
)

// TestLeaseOutlastsSilence: a lease that is over before the silence is refused, with both numbers. What an earlier version has
// stored counts as not given.
func TestLeaseOutlastsSilence(t *testing.T) {
	text := "[run]\nout = \"x\"\n[data]\ntrain = [\"a\"]\n"
	for _, tc := range []struct {
		sets []string
		want []string
	}{
		{[]string{"cluster.lease_s=0.3"}, []string{"cluster.lease_s", "0.3", "cluster.silence_s = 3.0"}},
		{[]string{"cluster.lease_s=3"}, []string{"cluster.lease_s", "3.0 s must be longer"}},
		{[]string{"cluster.silence_s=30"}, []string{"cluster.silence_s", "cluster.lease_s = 30.0"}},
		{[]string{"cluster.lease_s=3.1"}, nil},
	} {
		_, err := Parse("config.toml", []byte(text), tc.sets, nil)
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%q: %v", tc.sets, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v does not say %q", tc.sets, err, want)
			}
		}
	}
	c, err := ParseStored("config.toml", []byte(text+"[cluster]\nlease_s = 1.0\n"))
	if err != nil || c.Cluster.LeaseS <= c.Cluster.SilenceS {
		t.Errorf("stored: %+v, %v", c, err)
	}
}
