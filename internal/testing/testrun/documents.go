package testrun

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// PairsOf writes prompts with completions of 17 different lengths, some longer than the context.
func PairsOf(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"prompt\": %q, \"completion\": %q}\n", strings.Repeat("ab", i%3+1), strings.Repeat("x", i%17+1)+"yz"[i%2:])
	}
	return Write(t, filepath.Join(t.TempDir(), "pairs.jsonl"), b.String())
}
