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

// AnswersOf writes prompts with two answers of many different lengths, or for KTO with one and its label.
func AnswersOf(t *testing.T, n int, kto bool) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		prompt, good, bad := strings.Repeat("ab", i%3+1), strings.Repeat("x", i%7+1)+"yz"[i%2:], strings.Repeat("w", i%5+1)
		switch {
		case !kto:
			fmt.Fprintf(&b, "{\"prompt\": %q, \"chosen\": %q, \"rejected\": %q}\n", prompt, good, bad)
		case i%3 == 0:
			fmt.Fprintf(&b, "{\"prompt\": %q, \"completion\": %q, \"label\": false}\n", prompt, bad)
		default:
			fmt.Fprintf(&b, "{\"prompt\": %q, \"completion\": %q, \"label\": true}\n", prompt, good)
		}
	}
	return Write(t, filepath.Join(t.TempDir(), "answers.jsonl"), b.String())
}
