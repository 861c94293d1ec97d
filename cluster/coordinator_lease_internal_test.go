package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/config"
)

// TestLease: a run's lease comes from its config, else from the coordinator, and is always longer than the coordinator's
// silence.
func TestLease(t *testing.T) {
	for _, tc := range []struct {
		silence, lease time.Duration
		sets           []string
		want           float64
		err            string
	}{
		{3 * time.Second, 45 * time.Second, nil, 45, ""},
		{3 * time.Second, 45 * time.Second, []string{"cluster.lease_s=20"}, 20, ""},
		{20 * time.Second, 45 * time.Second, []string{"cluster.lease_s=20"}, 0, "20 s must be longer than this coordinator's silence of 20 s"},
		{20 * time.Second, 10 * time.Second, nil, 0, "its lease of 10 s must be longer than its silence of 20 s"},
	} {
		cfg, err := config.Parse("config.toml", []byte("[run]\nout = \"x\"\n[data]\ntrain = [\"a\"]\n"), tc.sets, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &Coordinator{cfg: Config{Silence: tc.silence, Lease: tc.lease}}
		err = c.lease(cfg)
		if tc.err == "" && (err != nil || cfg.Cluster.LeaseS != tc.want) || tc.err != "" &&
			(err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%+v: %v s, %v", tc, cfg.Cluster.LeaseS, err)
		}
	}
}
