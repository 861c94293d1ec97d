package data

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// openLog opens the log in a folder, as a run does.
func openLog(t interface{ Fatal(...any) }, dir string, vocab int) *Log {
	l, err := tryLog(t, dir, vocab)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func tryLog(t interface{ Fatal(...any) }, dir string, vocab int) (*Log, error) {
	var files [2]*os.File
	for i, name := range []string{"log", "index"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = f
	}
	l, err := OpenLog(files[0], files[1], StoredKey{1}, vocab)
	if err != nil {
		err = errors.Join(err, files[0].Close(), files[1].Close())
	}
	return l, err
}

// check compares the first documents of a log, read in an order of their own.
func check(t interface{ Fatalf(string, ...any) }, l *Log, docs []Document) {
	var d Document
	for i := len(docs) - 1; i >= 0; i-- {
		all, err := l.Entries(int64(i), 1)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if err := l.Read(all[0], &d); err != nil {
			t.Fatalf("%v", err)
		}
		want := docs[i]
		if want.Text {
			want.Learn = slices.Repeat([]bool{true}, len(want.IDs))
		}
		if !slices.Equal(d.IDs, want.IDs) || !slices.Equal(d.Learn, want.Learn) || d.Text != want.Text || d.Talk != want.Talk ||
			d.Row != want.Row {
			t.Fatalf("document %d: %+v, want %+v", i, d, want)
		}
	}
}

// TestLog: what is appended is there after the log is opened again, whatever was cut off its files.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		for _, name := range []string{"log", "index"} {
			_ = os.Remove(filepath.Join(dir, name))
		}
		vocab := rapid.SampledFrom([]int{256, 1 << 16, 1 << 20}).Draw(t, "vocab")
		docs := drawDocuments(t, vocab)
		files := make([]int, len(docs))
		l := openLog(t, dir, vocab)
		if err := l.Append(docs, files); err != nil {
			t.Fatal(err)
		}
		check(t, l, docs)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"log", "index"} {
			path := filepath.Join(dir, name)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, max(info.Size()-int64(rapid.IntRange(0, 60).Draw(t, "cut")), 0)); err != nil {
				t.Fatal(err)
			}
		}
		l = openLog(t, dir, vocab)
		n, _, complete := l.Len()
		if n > int64(len(docs)) || complete {
			t.Fatalf("%d documents of %d, complete: %v", n, len(docs), complete)
		}
		if err := errors.Join(l.Append(docs[n:], files[n:]), l.Finish()); err != nil {
			t.Fatal(err)
		}
		check(t, l, docs)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = openLog(t, dir, vocab)
		if n, _, complete := l.Len(); n != int64(len(docs)) || !complete {
			t.Fatalf("%d documents of %d, complete: %v", n, len(docs), complete)
		}
		check(t, l, docs)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLogJoined(t *testing.T) {
	l := openLog(t, t.TempDir(), 256)
	defer func() { _ = l.Close() }()
	var want []int32
	for i := range 50 {
		d := Document{Text: true, Row: i + 1}
		for k := range i % 7 {
			d.IDs, d.Learn = append(d.IDs, int32(i+k)), append(d.Learn, true)
		}
		want = append(want, d.IDs...)
		if err := l.Append([]Document{d}, []int{0}); err != nil {
			t.Fatal(err)
		}
	}
	for from := range want {
		got := make([]int32, min(9, len(want)-from))
		if err := l.Joined(got, int64(from)); err != nil || !slices.Equal(got, want[from:][:len(got)]) {
			t.Fatalf("%d: %v, %v", from, got, err)
		}
	}
	if l.Joined(make([]int32, 2), int64(len(want)-1)) == nil {
		t.Error("ids after the end")
	}
}

// TestLogDamage: each byte of an entry and of a document matters.
func TestLogDamage(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, dir, 300)
	docs := []Document{{IDs: []int32{1, 2, 3}, Learn: []bool{false, true, true}, Row: 1},
		{IDs: []int32{4, 5}, Learn: []bool{false, true}, Row: 2}}
	if err := errors.Join(l.Append(docs, []int{0, 0}), l.Finish(), l.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"log", "index"} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			if name == "index" && i < logHeader {
				continue // see below
			}
			other := slices.Clone(whole)
			other[i] ^= 0x40
			if err := os.WriteFile(path, other, 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := tryLog(t, dir, 300)
			if err == nil {
				all, err := l.Entries(0, 9)
				var d Document
				for _, e := range all {
					err = errors.Join(err, l.Read(e, &d))
				}
				if n, _, complete := l.Len(); err == nil && n == 2 && complete {
					t.Errorf("byte %d of %s may be another", i, name)
				}
				_ = l.Close()
			} else if !errors.Is(err, ErrStored) {
				t.Errorf("byte %d of %s: %v", i, name, err)
			}
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	index, err := os.OpenFile(filepath.Join(dir, "index"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = index.Close() }()
	if _, err := OpenLog(index, index, StoredKey{2}, 300); !errors.Is(err, ErrStored) {
		t.Errorf("another key: %v", err)
	}
}

// FuzzLog: no files panic, whatever they state.
func FuzzLog(f *testing.F) {
	dir := f.TempDir()
	l := openLog(f, dir, 300)
	docs := []Document{{IDs: []int32{1, 2, 3}, Learn: []bool{false, true, true}, Row: 1},
		{IDs: []int32{4, 5}, Learn: []bool{true, true}, Text: true}}
	if err := errors.Join(l.Append(docs, []int{0, 0}), l.Finish(), l.Close()); err != nil {
		f.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "log"))
	index, err2 := os.ReadFile(filepath.Join(dir, "index"))
	if err := errors.Join(err, err2); err != nil {
		f.Fatal(err)
	}
	f.Add(content, index[logHeader:])
	header := index[:logHeader]
	f.Fuzz(func(t *testing.T, content, entries []byte) {
		dir := t.TempDir()
		entries = slices.Clone(entries)
		for at := 0; at+logEntry <= len(entries); at += logEntry { // so that more than the checksum is tried
			e := entries[at : at+logEntry]
			binary.LittleEndian.PutUint32(e[logEntry-4:], crc32.Checksum(e[:logEntry-4], castagnoli))
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "log"), content, 0o600),
			os.WriteFile(filepath.Join(dir, "index"), append(slices.Clone(header), entries...), 0o600)); err != nil {
			t.Fatal(err)
		}
		l, err := tryLog(t, dir, 300)
		if err != nil {
			return
		}
		defer func() { _ = l.Close() }()
		n, ids, _ := l.Len()
		all, _ := l.Entries(0, n)
		var d Document
		for _, e := range all {
			_ = l.Read(e, &d)
		}
		_ = l.Joined(make([]int32, max(min(ids, 9), 0)), 0)
	})
}
