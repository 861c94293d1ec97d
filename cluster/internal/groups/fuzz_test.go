package groups

import (
	"bytes"
	"testing"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
)

// FuzzNote: reading and writing are inverse.
func FuzzNote(f *testing.F) {
	f.Add(note{kind: kindNote, name: "dp", from: 1, to: 2, members: lane.ID{1}, text: []byte("l")}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeNote(b)
		if err != nil {
			return
		}
		if again := n.encode(); !bytes.Equal(again, b) {
			t.Errorf("%x is written as %x", b, again)
		}
	})
}
