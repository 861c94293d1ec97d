// Package plural writes numbers with their nouns, for packages that say how many of something
// there are. It imports the standard library alone.
package plural

import (
	"fmt"
	"strings"
)

// Of writes a number with its noun: 1 batch, 2 batches.
func Of(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ch"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
