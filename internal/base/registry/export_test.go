package registry

import "slices"

// Restore forgets what is registered after it was called, when the function that it returns is.
func Restore() func() {
	mu.Lock()
	defer mu.Unlock()
	was := slices.Clone(names)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		names = was
	}
}
