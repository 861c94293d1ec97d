package data

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
)

// memoryFile is a StoredFile in memory.
type memoryFile struct{ *bytes.Reader }

func inMemoryFile(b []byte) memoryFile { return memoryFile{bytes.NewReader(b)} }

func (memoryFile) Close() error { return nil }

// WriteDocuments stores all documents of files, whose ids are below vocab.
func WriteDocuments(w io.Writer, key StoredKey, vocab int, files []string, docs *Documents) error {
	s := &storedWriter{w: bufio.NewWriterSize(w, 1<<20)}
	s.header(key, storedDocuments, idBytesFor(vocab), docs.ids.h.ids, int64(len(docs.list)))
	for _, d := range docs.list {
		n := uint64(d.n)
		if d.text {
			n |= storedText
		}
		if d.talk {
			n |= storedTalk
		}
		if d.good {
			n |= storedGood
		}
		s.number(n)
	}
	numbers := make([]uint32, len(docs.files))
	for i, name := range docs.files {
		numbers[i] = uint32(max(slices.Index(files, name), 0))
	}
	for _, d := range docs.list {
		s.number(uint64(numbers[d.file]) | uint64(d.row)<<32)
	}
	s.write(docs.learn)
	return s.rest(docs.ids, idBytesFor(vocab))
}

// OpenDocuments opens the documents in a file of size bytes that WriteDocuments wrote for the same key, vocabulary and number of files.
// It checks the file once, and the ids are read from it when they are needed. Close of the documents closes the file; after an error the
// caller does.
func OpenDocuments(f StoredFile, size int64, key StoredKey, vocab int, files []string) (*Documents, error) {
	s := &storedReader{r: io.NewSectionReader(f, 0, size)}
	h, err := s.header(key, storedDocuments, vocab, size)
	if err != nil {
		return nil, err
	}
	docs := &Documents{list: make([]documentAt, 0, h.documents), files: files, learn: make(learnBits, 0, (h.ids+7)/8),
		ids: &storedIDs{f: f, h: h, vocab: vocab, from: h.idsAt()}}
	at := int64(0)
	if err := s.pass(8*h.documents, func(b []byte) error {
		for ; len(b) > 0; b = b[8:] {
			v := binary.LittleEndian.Uint64(b)
			n := v &^ (storedText | storedTalk | storedGood)
			if n > math.MaxInt32 || int64(n) > h.ids-at {
				return fmt.Errorf("%w: document %d has %d ids, but only %d are left", ErrStored, len(docs.list), n, h.ids-at)
			}
			docs.list = append(docs.list, documentAt{at: at, n: int32(n), text: v&storedText != 0, talk: v&storedTalk != 0,
				good: v&storedGood != 0})
			at += int64(n)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if at != h.ids {
		return nil, fmt.Errorf("%w: %d ids belong to no document", ErrStored, h.ids-at)
	}
	i := 0
	if err := s.pass(8*h.documents, func(b []byte) error {
		for ; len(b) > 0; b, i = b[8:], i+1 {
			d := &docs.list[i]
			d.file, d.row = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
			if int64(d.file) >= int64(len(files)) {
				return fmt.Errorf("%w: document %d is of file %d of %d", ErrStored, i, d.file, len(files))
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := s.pass((h.ids+7)/8, func(b []byte) error {
		docs.learn = append(docs.learn, b...)
		return nil
	}); err != nil {
		return nil, err
	}
	if err := s.pass(h.ids*int64(h.idBytes), func([]byte) error { return nil }); err != nil {
		return nil, err
	}
	return docs, s.end()
}
