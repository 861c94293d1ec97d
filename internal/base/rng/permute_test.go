package rng

import "testing"

// A permutation maps each number to one, whatever the key, and differs from key to key.
func TestPermute(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 16, 255, 256, 257, 65_537} {
		seen, moved := make([]bool, n), 0
		for x := range n {
			y := Permute(NewKey(3, 1), 5, x, n)
			if y >= n || seen[y] {
				t.Fatalf("of %d, %d goes to %d, out of range or twice", n, x, y)
			}
			seen[y] = true
			if y != Permute(NewKey(4, 1), 5, x, n) {
				moved++
			}
		}
		if n > 100 && moved < int(n)/2 {
			t.Errorf("two keys give nearly the same permutation of %d: %d differ", n, moved)
		}
	}
	if y := Permute(NewKey(3, 1), 0, 1<<39, 1<<40); y >= 1<<40 {
		t.Errorf("image %d of 2^39 below 2^40", y)
	}
}
