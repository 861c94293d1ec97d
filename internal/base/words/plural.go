package words

import (
	"fmt"
	"strings"
)

// Plural writes a number with its noun: 1 batch, 2 batches.
func Plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "ch"):
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Numbers returns a list of numbers with commas: "14, 30".
func Numbers(list []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", ", "), "[]")
}
