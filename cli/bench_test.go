package cli

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestRound(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.000000", 0.0000012: "0.000001", 0.00123456: "0.00123", 0.9994: "0.999", 0.9996: "1.00", 9.994: "9.99", 9.996: "10.0",
		99.94: "99.9", 99.96: "100", 123456.7: "123457", -5.678: "-5.68",
	} {
		if got := round(x); got != want {
			t.Errorf("round(%v) = %s, want %s", x, got, want)
		}
	}
}

// TestBenchEndsOnSignal: a measurement that a signal ends removes its folder.
func TestBenchEndsOnSignal(t *testing.T) {
	dir, temp := workdir(t), t.TempDir()
	t.Setenv("TMPDIR", temp)
	p := startEngine(t, dir, "bench", "step", "--config", "tiny.toml", "--seconds", "3600")
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if begun, err := filepath.Glob(filepath.Join(temp, "*", "run", "metrics.jsonl")); err != nil || len(begun) > 0 {
			break
		}
	}
	p.signal(syscall.SIGTERM)
	p.ends(exitTryAgain)
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
