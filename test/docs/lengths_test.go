//go:build unix && !race

package docs

import (
	"strings"
	"testing"
)

// longest is how many lines a document has at most.
var longest = map[string]int{"README.md": 160, "docs/glossary.md": 80}

// TestLengths: what a reader is to read at once stays short.
func TestLengths(t *testing.T) {
	for page, limit := range longest {
		if n := strings.Count(read(t, page), "\n"); n > limit {
			t.Errorf("%s has %d lines, at most %d are to be read at once", page, n, limit)
		}
	}
}
