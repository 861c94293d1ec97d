package data

import (
	"bytes"
	"hash"
	"os"
	"strings"
	"testing"
)

// of makes the Identity of contents, sampled where they have more bytes than whole.
func of(t testing.TB, whole int64, files ...[]byte) Identity {
	t.Helper()
	c := contents{hash: func(h hash.Hash, file int, from, to int64) error {
		h.Write(files[file][from:to])
		return nil
	}}
	for _, f := range files {
		c.bytes = append(c.bytes, int64(len(f)))
	}
	id, err := c.identityUpTo(whole)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestIdentity(t *testing.T) {
	text := func(parts ...string) Identity {
		var files [][]byte
		for _, p := range parts {
			files = append(files, []byte(p))
		}
		return of(t, 1<<20, files...)
	}
	a := text("abc", "defgh")
	for _, tt := range []struct {
		name  string
		other Identity
		says  string // "": the same
	}{
		{"the same", text("abc", "defgh"), ""},
		{"a byte", text("abc", "defgX"), "2 files of 8 bytes in total as before, but with other content: SHA-256 " + a.SHA256[:12]},
		{"a border", text("abcd", "efgh"), "file 1 of 2 had 3 bytes and now has 4"},
		{"the order", text("defgh", "abc"), "2 files of 8 bytes in total, whose sizes are in another order"},
		{"a file more", text("abc", "defgh", ""), "2 files of 8 bytes in total before, 3 files of 8 bytes in total now"},
		{"a file", text("abcdefgh"), "2 files of 8 bytes in total before, 1 file of 8 bytes now"},
		{"more", text("abc", "defghi"), "file 2 of 2 had 5 bytes and now has 6"},
		{"nothing", text(), "0 files of 0 bytes"},
	} {
		if got := a.Difference(tt.other); !strings.Contains(got, tt.says) || (got == "") != (tt.says == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.says)
		}
	}
	// Data that is known by samples.
	rows := Identity{Samples: 3, Bytes: 12, SHA256: a.SHA256}
	for says, other := range map[string]Identity{
		"": rows,
		"3 samples of 12 bytes in total before, 4 samples of 16 bytes in total now": {Samples: 4, Bytes: 16, SHA256: a.SHA256},
		"3 samples of 12 bytes in total before, 2 files of 8 bytes in total now":    a,
	} {
		if got := rows.Difference(other); got != says {
			t.Errorf("samples: %q, want %q", got, says)
		}
	}
	if n := len(of(t, 1<<20, make([][]byte, listedFilesMax+1)...).FileBytes); n != 0 {
		t.Errorf("the sizes of %d files are listed", n)
	}
}

// TestIdentityOfHugeFiles: a sample finds other sizes, and a change as long as the blocks
// are apart; it says that it is one.
func TestIdentityOfHugeFiles(t *testing.T) {
	const size = 3 * sampleBlocks * sampleBlockBytes / 64 // blocks lie closer than they are long: all is read
	file := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	whole, sampled := of(t, size, file), of(t, size-1, file)
	if whole.Sampled || !sampled.Sampled {
		t.Errorf("sampled: %v at the limit, %v above it", whole.Sampled, sampled.Sampled)
	}
	for _, at := range []int{0, size / 3, size - 1} {
		changed := bytes.Clone(file)
		changed[at] ^= 1
		if d := sampled.Difference(of(t, size-1, changed)); d == "" {
			t.Errorf("a changed byte %d goes unnoticed", at)
		}
	}
	if d := sampled.Difference(of(t, size-1, file[:size/2], file[size/2:])); !strings.Contains(d, "2 files") {
		t.Errorf("two files instead of one: %q", d)
	}
}

// TestIdentityOfCorpora: a text and ids of the same bytes have one identity, whatever the
// files are called, and empty ones add nothing.
func TestIdentityOfCorpora(t *testing.T) {
	t.Chdir(t.TempDir())
	uint16File(t, "ids-1", 1, 2, 3)
	uint16File(t, "ids-2", 4)
	ids, err := OpenUint16([]string{"ids-1", "ids-2"}, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, ids)
	if err := os.Rename("ids-1", "first"); err != nil {
		t.Fatal(err)
	}
	write(t, "nothing", nil)
	text, err := ReadBytes([]string{"first", "ids-2", "nothing"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := ids.Identity()
	b, err2 := text.Identity()
	if err2 != nil {
		t.Fatal(err2)
	}
	if d := a.Difference(b); err != nil || d != "" || a.Bytes != 8 || a.Files != 2 {
		t.Errorf("%+v, %v, differs: %q", a, err, d)
	}
}

func TestExclude(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a", "b", "c"} {
		write(t, name, []byte("text"))
	}
	if err := os.Symlink("b", "link"); err != nil {
		t.Skip(err)
	}
	if err := os.Link("c", "hard"); err != nil {
		t.Skip(err)
	}
	rest, both, err := Exclude([]string{"a", "b", "hard"}, []string{"link", "c"})
	if err != nil || strings.Join(rest, " ") != "a" || strings.Join(both, " ") != "b hard" {
		t.Errorf("rest %q, both %q, %v", rest, both, err)
	}
	if _, _, err := Exclude([]string{"a"}, []string{"gone"}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("error %v", err)
	}
	if _, _, err := Exclude([]string{"gone"}, nil); err == nil {
		t.Error("no error about a file that is gone")
	}
}
