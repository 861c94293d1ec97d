package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var storedFiles = []string{"a.jsonl", "b.jsonl"}

// drawDocuments draws documents of a vocabulary.
func drawDocuments(t *rapid.T, vocab int) []Document {
	docs := make([]Document, rapid.IntRange(0, 5).Draw(t, "documents"))
	for i := range docs {
		n := rapid.IntRange(0, 40).Draw(t, "ids")
		docs[i] = Document{IDs: make([]int32, n), Learn: make([]bool, n), Text: rapid.Bool().Draw(t, "text"), Talk: rapid.Bool().Draw(t, "talk"),
			File: rapid.SampledFrom(storedFiles).Draw(t, "file"), Row: i + 1}
		for k := range n {
			docs[i].IDs[k] = int32(rapid.IntRange(0, vocab-1).Draw(t, "id"))
			docs[i].Learn[k] = rapid.Bool().Draw(t, "learn")
		}
	}
	return docs
}

// storedDocumentsOf holds documents, and stores them.
func storedDocumentsOf(t rapid.TB, key StoredKey, vocab int, docs []Document) (*Documents, []byte) {
	t.Helper()
	held, err := HoldDocuments(docs, vocab)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := WriteDocuments(&b, key, vocab, storedFiles, held); err != nil {
		t.Fatal(err)
	}
	return held, b.Bytes()
}

func openDocuments(b []byte, key StoredKey, vocab int) (*Documents, error) {
	return OpenDocuments(inMemoryFile(b), int64(len(b)), key, vocab, storedFiles)
}

// TestStoredDocuments: documents in memory and in a file are those that were given, and so are their parts, joined texts and records.
func TestStoredDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 256, 257, 1 << 16, 1<<16 + 1, 1 << 20}).Draw(t, "vocab")
		docs, key := drawDocuments(t, vocab), StoredKey{1, 2, 3}
		held, text := storedDocumentsOf(t, key, vocab, docs)
		opened, err := openDocuments(text, key, vocab)
		if err != nil {
			t.Fatal(err)
		}
		chosen := make([]bool, len(docs))
		var some, rest []Document
		for i, d := range docs {
			if chosen[i] = rapid.Bool().Draw(t, "chosen"); chosen[i] {
				some = append(some, d)
			} else {
				rest = append(rest, d)
			}
		}
		for _, of := range []*Documents{held, opened} {
			checkDocuments(t, of, docs)
			others, those := of.Part(chosen)
			checkDocuments(t, those, some)
			checkDocuments(t, others, rest)
		}
	})
}

// checkDocuments compares documents with what they should be.
func checkDocuments(t *rapid.T, of *Documents, docs []Document) {
	if of.Len() != len(docs) {
		t.Fatalf("%d documents of %d", of.Len(), len(docs))
	}
	var ids []int32
	var bounds Bounds
	records, kept := NewRecords(of), []Document(nil)
	for i, want := range docs {
		got, err := of.Read(i)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.IDs, want.IDs) || !slices.Equal(got.Learn, want.Learn) || got.Text != want.Text || got.Talk != want.Talk ||
			got.File != want.File || got.Row != want.Row || of.IDs(i) != len(want.IDs) || of.Text(i) != want.Text || of.Talk(i) != want.Talk {
			t.Fatalf("document %d: %+v, want %+v", i, got, want)
		}
		if n := max(slices.Index(want.Learn[min(1, len(want.Learn)):], true)+1, 0); of.FirstTarget(i) != n {
			t.Fatalf("document %d: the first target is %d, want %d", i, of.FirstTarget(i), n)
		}
		if len(want.IDs) > 0 {
			ids, bounds = append(ids, want.IDs...), append(bounds, int64(len(ids)))
		}
		if len(want.IDs) >= 2 {
			records.Add(i, len(want.IDs))
			kept = append(kept, want)
		}
	}
	joined, starts := of.Joined()
	got := make([]int32, joined.Len())
	if err := joined.Read(got, 0); err != nil || !slices.Equal(got, ids) || !slices.Equal(starts, bounds) {
		t.Fatalf("joined: %v at %v, want %v at %v, %v", got, starts, ids, bounds, err)
	}
	targets := int64(0)
	for i, want := range kept {
		n := records.Positions(i)
		in, out := make([]int32, n), make([]int32, n)
		if err := records.Fill(i, in, out); err != nil || !slices.Equal(in, want.IDs[:len(want.IDs)-1]) {
			t.Fatalf("record %d: %v of %v, %v", i, in, want.IDs, err)
		}
		for k, target := range out {
			switch learn := want.Learn[k+1]; {
			case learn && target == want.IDs[k+1]:
				targets++
			case learn || target != Masked:
				t.Fatalf("record %d: target %d is %d, learned: %v", i, k, target, learn)
			}
		}
	}
	if records.Targets() != targets {
		t.Fatalf("%d targets, want %d", records.Targets(), targets)
	}
}

func TestStoredCorpus(t *testing.T) {
	for _, vocab := range []int{200, 5000, 100_000} {
		for _, n := range []int{0, 1, storedPiece - 1, storedPiece, 3*storedPiece + 7} {
			ids := make([]int32, n)
			for i := range ids {
				ids[i] = int32(i * 7919 % vocab)
			}
			var b bytes.Buffer
			if err := WriteCorpus(&b, StoredKey{9}, vocab, NewTokens(ids)); err != nil {
				t.Fatal(err)
			}
			c, err := ReadCorpus(bytes.NewReader(b.Bytes()), int64(b.Len()), StoredKey{9}, vocab)
			if err != nil {
				t.Fatal(err)
			}
			if got := all(t, c); !slices.Equal(got, ids) {
				t.Errorf("vocabulary %d: %d ids, others than the %d", vocab, len(got), n)
			}
			_, isNarrow := c.(inMemory[int32])
			if isNarrow != (vocab > 1<<16) {
				t.Errorf("vocabulary %d: %v", vocab, reflect.TypeOf(c))
			}
		}
	}
}

// TestStoredDamage: each byte matters, and so does each that is missing.
func TestStoredDamage(t *testing.T) {
	docs := []Document{{IDs: []int32{1, 2, 3}, Learn: []bool{true, false, true}, Text: true}, {IDs: []int32{4}, Learn: []bool{true}}}
	key := StoredKey{5}
	_, whole := storedDocumentsOf(t, key, 300, docs)
	read := func(b []byte) error {
		_, err := openDocuments(b, key, 300)
		return err
	}
	if err := read(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		other := slices.Clone(whole)
		other[i] ^= 0x40
		if read(other) == nil {
			t.Errorf("byte %d may be another", i)
		}
		if read(whole[:i]) == nil {
			t.Errorf("the first %d bytes will do", i)
		}
	}
	if err := read(append(slices.Clone(whole), 0)); !errors.Is(err, ErrStored) {
		t.Errorf("a byte more: %v", err)
	}
	if _, err := ReadCorpus(bytes.NewReader(whole), int64(len(whole)), key, 300); !errors.Is(err, ErrStored) {
		t.Errorf("documents as a corpus: %v", err)
	}
	if _, err := openDocuments(whole, StoredKey{6}, 300); !errors.Is(err, ErrStored) {
		t.Errorf("another text's: %v", err)
	}
	if _, err := openDocuments(whole, key, 200); !errors.Is(err, ErrStored) {
		t.Errorf("another vocabulary's: %v", err)
	}
}

func FuzzStored(f *testing.F) {
	key := StoredKey{5}
	_, documents := storedDocumentsOf(f, key, 300, []Document{{IDs: []int32{1, 2}, Learn: []bool{true, false}}})
	f.Add(documents)
	var b bytes.Buffer
	if err := WriteCorpus(&b, key, 300, NewTokens([]int32{1, 299, 7})); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		if n := len(file) - 4; n > 0 { // so that more than the checksum is tried
			binary.LittleEndian.PutUint32(file[n:], crc32.Checksum(file[:n], castagnoli))
		}
		docs, err := openDocuments(file, key, 300)
		if err == nil && idsBelow(docs) {
			var again bytes.Buffer
			if err := WriteDocuments(&again, key, 300, storedFiles, docs); err != nil || again.Len() != len(file) {
				t.Fatalf("%d bytes of %d, %v", again.Len(), len(file), err)
			}
		}
		_, _ = ReadCorpus(bytes.NewReader(file), int64(len(file)), key, 300)
	})
}

// idsBelow reports whether all documents can be read: their ids are checked then, not when they are opened.
func idsBelow(docs *Documents) bool {
	for i := range docs.Len() {
		if _, err := docs.Read(i); err != nil {
			return false
		}
	}
	return true
}
