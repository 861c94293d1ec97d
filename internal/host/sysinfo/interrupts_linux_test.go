package sysinfo

import (
	"testing"
	"time"
)

func TestInterruptTime(t *testing.T) {
	for stat, want := range map[string]time.Duration{
		"cpu  194314 0 22311 135543 634 3 1208 244 0 0\ncpu0 94592 0 9519 71998 250 0 554 121 0 0\n": 12110 * time.Millisecond,
		"cpu 1 2 3 4 5 6 7":                    130 * time.Millisecond,
		"cpu 1 2 3 4 5 6":                      0,
		"cpu 1 2 3 4 5 6 x":                    0,
		"cpu 1 2 3 4 5 -6 7":                   0,
		"cpu0 1 2 3 4 5 6 7":                   0,
		"":                                     0,
		"cpu 1 2 3 4 5 6 99999999999999999999": 0,
	} {
		if got := interruptTime(stat); got != want {
			t.Errorf("%q: %v, want %v", stat, got, want)
		}
	}
	if InterruptTime() < 0 {
		t.Error("negative")
	}
}
