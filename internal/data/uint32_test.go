package data_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/data"
)

// TestUint32: ids of four bytes, which vocabularies above 65,536 need.
func TestUint32(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, ids ...uint32) string {
		var b []byte
		for _, id := range ids {
			b = binary.LittleEndian.AppendUint32(b, id)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	c, err := data.OpenIDs([]string{file("a", 1, 70_000), file("b", 3)}, 80_000, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	got := make([]int32, 3)
	if err := c.Read(got, 0); err != nil || c.Len() != 3 || !slices.Equal(got, []int32{1, 70_000, 3}) {
		t.Errorf("%v of %d, %v", got, c.Len(), err)
	}
	large, err := data.OpenIDs([]string{file("c", 1, 1<<31)}, 80_000, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = large.Close() }()
	if err := large.Read(got[:2], 0); !errors.Is(err, data.ErrVocab) || !strings.Contains(err.Error(), "2147483648 at byte 4") {
		t.Errorf("an id of 2^31: %v", err)
	}
	odd := filepath.Join(dir, "odd")
	if err := os.WriteFile(odd, make([]byte, 6), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := data.OpenIDs([]string{odd}, 10, 4); err == nil || !strings.Contains(err.Error(), "uint32 ids have 4 bytes each") {
		t.Errorf("6 bytes: %v", err)
	}
}
