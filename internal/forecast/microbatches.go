package forecast

import "slices"

// Microbatches returns the sizes of microbatch to measure: those of 1/4, 1/2,
// 1, 2 and 4 times the configured size that divide the step's sequences, and if there
// are fewer than three, the next divisors.
func Microbatches(sequences, configured int) []int {
	var out []int
	for _, n := range []int{configured / 4, configured / 2, configured, 2 * configured, 4 * configured} {
		if n >= 1 && sequences%n == 0 && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	for distance := 1; len(out) < 3 && distance < sequences; distance++ {
		for _, n := range []int{configured - distance, configured + distance} {
			if n >= 1 && n <= sequences && sequences%n == 0 && !slices.Contains(out, n) && len(out) < 3 {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out
}
