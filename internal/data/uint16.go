package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"math"
	"os"
	"runtime/debug"
	"sort"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
)

// OpenUint16 is OpenIDs for ids of two bytes.
func OpenUint16(files []string, vocab int) (*IDs, error) { return OpenIDs(files, vocab, 2) }

// OpenIDs opens files of flat little-endian token ids of two bytes (uint16) or four (uint32), one
// after the other. If the system supports it they are memory-mapped, so that memory does not limit
// their size. An id that is not below vocab is detected when it is read.
func OpenIDs(files []string, vocab, idBytes int) (c *IDs, err error) {
	u := &IDs{vocab: vocab, idBytes: idBytes}
	defer func() {
		if err != nil {
			err = errors.Join(err, u.Close())
		}
	}()
	for _, name := range files {
		if err := u.add(name); err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
	}
	if u.n == 0 {
		return nil, fmt.Errorf("%w: %d uint%d files have 0 bytes in total%s", ErrEmpty, len(files), 8*idBytes, first(files))
	}
	return u, nil
}

// IDs is a corpus of ids that another program has written.
type IDs struct {
	files []idFile
	n     int64
	vocab int
	// idBytes is the size of an id in the files: 2 or 4.
	idBytes int
}

// idFile is one file of ids.
type idFile struct {
	name  string
	start int64 // position of its first id in the corpus
	bytes []byte
}

func (c *IDs) add(name string) error {
	size, err := fileSize(name)
	if err != nil {
		return err
	}
	switch {
	case size%int64(c.idBytes) != 0:
		return fmt.Errorf("%s has %d bytes, but uint%d ids have %d bytes each: the file is truncated, or has another format", plain(name), size,
			8*c.idBytes, c.idBytes)
	case size > math.MaxInt:
		return fmt.Errorf("%s has %d bytes, which exceeds this machine's address space", plain(name), size)
	case size == 0: // cannot be mapped
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return plainError(err)
	}
	defer func() { _ = f.Close() }() // opened for reading only; a mapping outlives its file
	bytes, err := hostmem.MapFile(f, int(size))
	if err != nil {
		return fmt.Errorf("map the %d bytes of %s: %w", size, plain(name), err)
	}
	c.files = append(c.files, idFile{name, c.n, bytes})
	c.n += size / int64(c.idBytes)
	return nil
}

// Identity returns the identity of the files, without empty ones.
func (c *IDs) Identity() (Identity, error) {
	of := contents{bytes: make([]int64, len(c.files)), hash: func(h hash.Hash, file int, from, to int64) error {
		return c.files[file].hash(h, from, to)
	}}
	for i, f := range c.files {
		of.bytes[i] = int64(len(f.bytes))
	}
	return of.identity()
}

// Len returns the number of ids.
func (c *IDs) Len() int64 { return c.n }

// Read fills dst with ids.
func (c *IDs) Read(dst []int32, off int64) error {
	if err := checkRange(len(dst), off, c.n); err != nil {
		return err
	}
	// The file that holds off is the one before the first file that starts after it.
	next := sort.Search(len(c.files), func(i int) bool { return c.files[i].start > off })
	for len(dst) > 0 {
		f := &c.files[next-1]
		first := off - f.start
		n := min(len(dst), int(int64(len(f.bytes)/c.idBytes)-first))
		if err := f.read(dst[:n], first, c.vocab, c.idBytes); err != nil {
			return err
		}
		dst, off, next = dst[n:], off+int64(n), next+1
	}
	return nil
}

// read fills dst with the ids starting at number first.
func (f *idFile) read(dst []int32, first int64, vocab, idBytes int) error {
	return f.mapped(int64(idBytes)*first, func() error {
		for i := range dst {
			at := int64(idBytes) * (first + int64(i))
			id := uint32(binary.LittleEndian.Uint16(f.bytes[at:]))
			if idBytes == 4 {
				id = binary.LittleEndian.Uint32(f.bytes[at:])
			}
			if int64(id) >= int64(vocab) {
				return fmt.Errorf("%w: %s has the id %d at byte %d, but the vocabulary has %d ids: set model.vocab to what the data was made with, or use other data",
					ErrVocab, plain(f.name), id, at, vocab)
			}
			dst[i] = int32(id)
		}
		return nil
	})
}

func (f *idFile) hash(h hash.Hash, from, to int64) error {
	return f.mapped(from, func() error {
		h.Write(f.bytes[from:to])
		return nil
	})
}

// mapped calls a function that reads the file from a byte on. A mapped file that was truncated
// faults where its bytes were; mapped turns this into an error.
func (f *idFile) mapped(from int64, read func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if p := recover(); p != nil {
			if _, isFault := p.(interface{ Addr() uintptr }); !isFault {
				panic(p)
			}
			err = fmt.Errorf("data file: cannot read %s at byte %d or later: it became shorter, or its disk has failed", plain(f.name), from)
		}
	}()
	return read()
}

// Close removes the mapping.
func (c *IDs) Close() error {
	var all []error
	for _, f := range c.files {
		if err := hostmem.UnmapFile(f.bytes); err != nil {
			all = append(all, fmt.Errorf("unmap %s: %w", plain(f.name), err))
		}
	}
	c.files, c.n = nil, 0
	return errors.Join(all...)
}
