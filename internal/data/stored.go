package data

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// ErrStored: stored ids belong to something else, or are damaged.
var ErrStored = errors.New("not the stored token ids")

// A file of stored ids has the following form, with little-endian numbers:
//
//	magic     16 bytes
//	key       32 bytes: the digest of what the ids were made from
//	kind      1 byte: a corpus or documents
//	idBytes   1 byte: 1, 2 or 4
//	zeros     6 bytes
//	ids       8 bytes: their number
//	documents 8 bytes: their number; 0 for a corpus
//	lengths   8 bytes for each document; the highest bit is Text, the next one Talk
//	places    8 bytes for each document: the number of its file and its row, 4 bytes each
//	learn     a bit for each id; only for documents
//	ids       idBytes for each
//	checksum  4 bytes: the CRC-32C of everything before it
//
// So its length follows from its header, and is checked before anything is allocated.
const (
	storedMagic  = "troupe ids v3\n\x00\x00"
	storedHeader = 72

	storedCorpus    = 'c'
	storedDocuments = 'd'
	storedText      = 1 << 63
	storedTalk      = 1 << 62
	storedGood      = 1 << 61

	storedPiece = 1 << 16 // ids at a time
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// StoredKey is the digest of what ids were made from.
type StoredKey [32]byte

func idBytesFor(vocab int) int {
	switch {
	case vocab <= 1<<8:
		return 1
	case vocab <= 1<<16:
		return 2
	}
	return 4
}

// storedWriter writes with a checksum.
type storedWriter struct {
	w   *bufio.Writer
	sum uint32
	err error
}

func (s *storedWriter) write(b []byte) {
	if s.err == nil {
		s.sum = crc32.Update(s.sum, castagnoli, b)
		_, s.err = s.w.Write(b)
	}
}

func (s *storedWriter) number(n uint64) { s.write(binary.LittleEndian.AppendUint64(nil, n)) }

func (s *storedWriter) header(key StoredKey, kind byte, idBytes int, ids, documents int64) {
	s.write([]byte(storedMagic))
	s.write(key[:])
	s.write([]byte{kind, byte(idBytes), 0, 0, 0, 0, 0, 0})
	s.number(uint64(ids))
	s.number(uint64(documents))
}

// rest writes what follows the header and the lists: all ids of a corpus, and the checksum.
func (s *storedWriter) rest(c Corpus, idBytes int) error {
	piece, buf := make([]int32, storedPiece), []byte(nil)
	for at := int64(0); at < c.Len() && s.err == nil; at += storedPiece {
		part := piece[:min(storedPiece, c.Len()-at)]
		if err := c.Read(part, at); err != nil {
			return err
		}
		buf = appendIDs(buf[:0], part, idBytes)
		s.write(buf)
	}
	return s.end()
}

// appendIDs appends ids of idBytes each.
func appendIDs(b []byte, ids []int32, idBytes int) []byte {
	for _, id := range ids {
		switch idBytes {
		case 1:
			b = append(b, byte(id))
		case 2:
			b = binary.LittleEndian.AppendUint16(b, uint16(id))
		default:
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
	}
	return b
}

func (s *storedWriter) end() error {
	if s.err == nil {
		_, s.err = s.w.Write(binary.LittleEndian.AppendUint32(nil, s.sum))
	}
	if s.err == nil {
		s.err = s.w.Flush()
	}
	return s.err
}

// WriteCorpus stores a corpus of ids below vocab.
func WriteCorpus(w io.Writer, key StoredKey, vocab int, c Corpus) error {
	s := &storedWriter{w: bufio.NewWriterSize(w, 1<<20)}
	idBytes := idBytesFor(vocab)
	s.header(key, storedCorpus, idBytes, c.Len(), 0)
	return s.rest(c, idBytes)
}

// storedReader reads what storedWriter wrote.
type storedReader struct {
	r   io.Reader
	sum uint32
	buf []byte
}

func (s *storedReader) read(n int) ([]byte, error) {
	s.buf = slices.Grow(s.buf[:0], n)[:n]
	if _, err := io.ReadFull(s.r, s.buf); err != nil {
		return nil, err
	}
	s.sum = crc32.Update(s.sum, castagnoli, s.buf)
	return s.buf, nil
}

// stored is the content of a header.
type stored struct {
	kind           byte
	idBytes        int
	ids, documents int64
}

// idsAt is where in the file the ids start.
func (h stored) idsAt() int64 {
	if h.kind != storedDocuments {
		return storedHeader
	}
	return storedHeader + 16*h.documents + (h.ids+7)/8
}

func (s *storedReader) header(key StoredKey, kind byte, vocab int, size int64) (h stored, err error) {
	b, err := s.read(storedHeader)
	if err != nil {
		return h, err
	}
	if string(b[:16]) != storedMagic || !bytes.Equal(b[16:48], key[:]) || b[48] != kind || !bytes.Equal(b[50:56], make([]byte, 6)) {
		return h, fmt.Errorf("%w: they belong to another text, tokenizer or version", ErrStored)
	}
	h = stored{kind: b[48], idBytes: int(b[49]), ids: int64(binary.LittleEndian.Uint64(b[56:])),
		documents: int64(binary.LittleEndian.Uint64(b[64:]))}
	if h.idBytes != idBytesFor(vocab) {
		return h, fmt.Errorf("%w: ids have %d bytes, but with a vocabulary of %d they must have %d", ErrStored, h.idBytes, vocab,
			idBytesFor(vocab))
	}
	// No product below overflows.
	const most = 1 << 48
	if h.ids < 0 || h.ids > most || h.documents < 0 || h.documents > most || h.idsAt()+h.ids*int64(h.idBytes)+4 != size {
		return h, fmt.Errorf("%w: the file has %d bytes, which does not match %d ids in %d documents", ErrStored, size, h.ids, h.documents)
	}
	return h, nil
}

// take passes the ids in pieces to give, as int32.
func (s *storedReader) take(h stored, vocab int, n int64, give func([]int32) error) error {
	wide := make([]int32, min(n, storedPiece))
	for n > 0 {
		now := int(min(n, storedPiece))
		b, err := s.read(now * h.idBytes)
		if err != nil {
			return err
		}
		for i := range now {
			var id uint32
			switch h.idBytes {
			case 1:
				id = uint32(b[i])
			case 2:
				id = uint32(binary.LittleEndian.Uint16(b[2*i:]))
			default:
				id = binary.LittleEndian.Uint32(b[4*i:])
			}
			if int64(id) >= int64(vocab) {
				return fmt.Errorf("%w: found id %d, but the vocabulary has %d ids", ErrStored, id, vocab)
			}
			wide[i] = int32(id)
		}
		if err := give(wide[:now]); err != nil {
			return err
		}
		n -= int64(now)
	}
	return nil
}

func (s *storedReader) end() error {
	sum := s.sum
	b, err := s.read(4)
	if err != nil {
		return err
	}
	if got := binary.LittleEndian.Uint32(b); got != sum {
		return fmt.Errorf("%w: the checksum is %08x, but the content has %08x", ErrStored, got, sum)
	}
	return nil
}

// ReadCorpus reads a corpus from the size bytes that WriteCorpus wrote for the same key and
// vocabulary.
func ReadCorpus(r io.Reader, size int64, key StoredKey, vocab int) (Corpus, error) {
	switch {
	case vocab <= 1<<8:
		return readCorpus[uint8](r, size, key, vocab)
	case vocab <= 1<<16:
		return readCorpus[uint16](r, size, key, vocab)
	}
	return readCorpus[int32](r, size, key, vocab)
}

func readCorpus[ID uint8 | uint16 | int32](r io.Reader, size int64, key StoredKey, vocab int) (Corpus, error) {
	s := &storedReader{r: r}
	h, err := s.header(key, storedCorpus, vocab, size)
	if err != nil {
		return nil, err
	}
	if h.documents != 0 {
		return nil, fmt.Errorf("%w: a corpus cannot have %d documents", ErrStored, h.documents)
	}
	c := make(inMemory[ID], 0, h.ids)
	if err := s.take(h, vocab, h.ids, func(ids []int32) error {
		for _, id := range ids {
			c = append(c, ID(id))
		}
		return nil
	}); err != nil {
		return nil, err
	}
	return c, s.end()
}

// StoredFile is an open file that WriteCorpus or WriteDocuments wrote.
type StoredFile interface {
	io.ReaderAt
	io.Closer
}

// OpenCorpus opens the corpus in a file of size bytes that WriteCorpus wrote for the same key and vocabulary. It checks the file once, and
// reads the ids from it when they are needed. The corpus closes the file; after an error the caller does.
func OpenCorpus(f StoredFile, size int64, key StoredKey, vocab int) (Corpus, error) {
	s := &storedReader{r: io.NewSectionReader(f, 0, size)}
	h, err := s.header(key, storedCorpus, vocab, size)
	if err != nil {
		return nil, err
	}
	if h.documents != 0 {
		return nil, fmt.Errorf("%w: a corpus cannot have %d documents", ErrStored, h.documents)
	}
	if err := s.pass(h.ids*int64(h.idBytes), func([]byte) error { return nil }); err != nil {
		return nil, err
	}
	if err := s.end(); err != nil {
		return nil, err
	}
	return &storedIDs{f, h, vocab, h.idsAt()}, nil
}

// pass reads n bytes in pieces, whose lengths are multiples of 16 except for the last one.
func (s *storedReader) pass(n int64, give func([]byte) error) error {
	for n > 0 {
		b, err := s.read(int(min(n, 1<<20)))
		if err != nil {
			return err
		}
		if err := give(b); err != nil {
			return err
		}
		n -= int64(len(b))
	}
	return nil
}

// storedIDs are ids in a file.
type storedIDs struct {
	f     StoredFile
	h     stored
	vocab int
	from  int64 // where in the file they start
}

func (c *storedIDs) Len() int64   { return c.h.ids }
func (c *storedIDs) Close() error { return c.f.Close() }

func (c *storedIDs) Read(dst []int32, off int64) error {
	if err := checkRange(len(dst), off, c.h.ids); err != nil {
		return err
	}
	size := int64(len(dst)) * int64(c.h.idBytes)
	s := &storedReader{r: io.NewSectionReader(c.f, c.from+off*int64(c.h.idBytes), size)}
	at := 0
	return s.take(c.h, c.vocab, int64(len(dst)), func(ids []int32) error {
		at += copy(dst[at:], ids)
		return nil
	})
}
