package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestImprove: up to half of the first model's answers are right, as half of its examples are; most of the tuned one's are.
func TestImprove(t *testing.T) {
	var out strings.Builder
	if err := improve(t.Context(), &out, filepath.Join(t.TempDir(), "sums"), 2); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + out.String())
	var right [3]int
	for round := range right {
		_, after, ok := strings.Cut(out.String(), fmt.Sprintf("round-%d: ", round))
		if _, err := fmt.Sscanf(after, "%d of 400 answers are right", &right[round]); err != nil || !ok {
			t.Fatal(err)
		}
	}
	if right[0] < 60 || right[0] > 280 || right[1] < right[0]+60 || right[2] < 320 {
		t.Errorf("%d of 400 answers are right in the rounds", right)
	}
	if n := strings.Count(out.String(), "answers are right"); n != 6 {
		t.Errorf("%d reports, not 6", n)
	}
}
