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

func TestStoredDocuments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vocab := rapid.SampledFrom([]int{1, 256, 257, 1 << 16, 1<<16 + 1, 1 << 20}).Draw(t, "vocab")
		docs, key := drawDocuments(t, vocab), StoredKey{1, 2, 3}
		var b bytes.Buffer
		if err := WriteDocuments(&b, key, vocab, storedFiles, docs); err != nil {
			t.Fatal(err)
		}
		got, err := ReadDocuments(bytes.NewReader(b.Bytes()), int64(b.Len()), key, vocab, storedFiles)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(docs) {
			t.Fatalf("%d documents of %d", len(got), len(docs))
		}
		for i := range docs {
			if !slices.Equal(got[i].IDs, docs[i].IDs) || !slices.Equal(got[i].Learn, docs[i].Learn) || got[i].Text != docs[i].Text ||
				got[i].Talk != docs[i].Talk || got[i].File != docs[i].File || got[i].Row != docs[i].Row {
				t.Fatalf("document %d: %+v, want %+v", i, got[i], docs[i])
			}
		}
	})
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
	var b bytes.Buffer
	key := StoredKey{5}
	if err := WriteDocuments(&b, key, 300, storedFiles, docs); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	read := func(b []byte) error {
		_, err := ReadDocuments(bytes.NewReader(b), int64(len(b)), key, 300, storedFiles)
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
	if _, err := ReadDocuments(bytes.NewReader(whole), int64(len(whole)), StoredKey{6}, 300, storedFiles); !errors.Is(err, ErrStored) {
		t.Errorf("another text's: %v", err)
	}
	if _, err := ReadDocuments(bytes.NewReader(whole), int64(len(whole)), key, 200, storedFiles); !errors.Is(err, ErrStored) {
		t.Errorf("another vocabulary's: %v", err)
	}
}

func FuzzStored(f *testing.F) {
	var b bytes.Buffer
	key := StoredKey{5}
	if err := WriteDocuments(&b, key, 300, storedFiles, []Document{{IDs: []int32{1, 2}, Learn: []bool{true, false}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	b.Reset()
	if err := WriteCorpus(&b, key, 300, NewTokens([]int32{1, 299, 7})); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		if n := len(file) - 4; n > 0 { // so that more than the checksum is tried
			binary.LittleEndian.PutUint32(file[n:], crc32.Checksum(file[:n], castagnoli))
		}
		docs, err := ReadDocuments(bytes.NewReader(file), int64(len(file)), key, 300, storedFiles)
		if err == nil {
			var again bytes.Buffer
			if err := WriteDocuments(&again, key, 300, storedFiles, docs); err != nil || again.Len() != len(file) {
				t.Fatalf("%d bytes of %d, %v", again.Len(), len(file), err)
			}
		}
		_, _ = ReadCorpus(bytes.NewReader(file), int64(len(file)), key, 300)
	})
}
