package cli

import "testing"

// TestPageAddress: the port of a folder's page does not depend on the start or on how the folder is named.
func TestPageAddress(t *testing.T) {
	address := func(dir string) string {
		a, err := pageAddress(dir)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one := address("runs/one")
	if again := address("./runs/../runs/one"); again != one {
		t.Errorf("another start: %v, not %v", again, one)
	}
	if two := address("runs/two"); two == one {
		t.Errorf("two folders have one address: %v", two)
	}
}
