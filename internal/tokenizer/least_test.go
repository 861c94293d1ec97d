package tokenizer

import "testing"

// TestLeastIDs: no text has fewer ids.
func TestLeastIDs(t *testing.T) {
	chars, err := BuildChars([]byte("aä"))
	if err != nil {
		t.Fatal(err)
	}
	for want, tok := range map[int]Tokenizer{9: Bytes{}, 3: chars} {
		if n := LeastIDs(tok, 9); n != want {
			t.Errorf("%s: %d, want %d", tok.Name(), n, want)
		}
	}
}
