package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"sort"
)

// OpenUint16 opens files of flat little-endian uint16 token ids, one behind the
// other. Where the system can, they are memory-mapped, so that their size is not
// limited by memory. An id that is not below vocab is found when it is read.
func OpenUint16(files []string, vocab int) (c Corpus, err error) {
	u := &uint16Corpus{vocab: vocab}
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
		return nil, fmt.Errorf("%w: %d uint16 files with 0 bytes together%s", ErrEmpty, len(files), first(files))
	}
	return u, nil
}

type uint16Corpus struct {
	files []idFile
	n     int64
	vocab int
}

// idFile is one file of ids.
type idFile struct {
	name  string
	start int64 // position of its first id in the corpus
	bytes []byte
	free  func() error
}

func (c *uint16Corpus) add(name string) error {
	size, err := fileSize(name)
	if err != nil {
		return err
	}
	switch {
	case size%2 != 0:
		return fmt.Errorf("%s has %d bytes, an odd number, but uint16 ids have two each: the file is cut short, or of another format", name, size)
	case size > math.MaxInt:
		return fmt.Errorf("%s has %d bytes, more than fit this machine's address space", name, size)
	case size == 0: // which can't be mapped
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read; a mapping outlives its file
	bytes, free, err := mapFile(f, int(size))
	if err != nil {
		return fmt.Errorf("mapping the %d bytes of %s: %w", size, name, err)
	}
	c.files = append(c.files, idFile{name, c.n, bytes, free})
	c.n += size / 2
	return nil
}

func (c *uint16Corpus) Len() int64 { return c.n }

func (c *uint16Corpus) Read(dst []int32, off int64) error {
	if err := checkRange(len(dst), off, c.n); err != nil {
		return err
	}
	// The file that holds off is before the first one that starts behind it.
	next := sort.Search(len(c.files), func(i int) bool { return c.files[i].start > off })
	for len(dst) > 0 {
		f := &c.files[next-1]
		first := off - f.start
		n := min(len(dst), int(int64(len(f.bytes)/2)-first))
		if err := f.read(dst[:n], first, c.vocab); err != nil {
			return err
		}
		dst, off, next = dst[n:], off+int64(n), next+1
	}
	return nil
}

// read fills dst with the ids from number first on. A file that somebody has cut
// while it is mapped faults where its bytes were; that is an error like another.
func (f *idFile) read(dst []int32, first int64, vocab int) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if p := recover(); p != nil {
			if _, isFault := p.(interface{ Addr() uintptr }); !isFault {
				panic(p)
			}
			err = fmt.Errorf("data file: %s can't be read at byte %d or behind: it became shorter, or its disk fails", f.name, 2*first)
		}
	}()
	for i := range dst {
		at := first + int64(i)
		id := binary.LittleEndian.Uint16(f.bytes[2*at:])
		if int(id) >= vocab {
			return fmt.Errorf("%w: %s has the id %d at byte %d, but the vocabulary has %d ids: set model.vocab to what the data was made with, or use other data",
				ErrVocab, f.name, id, 2*at, vocab)
		}
		dst[i] = int32(id)
	}
	return nil
}

func (c *uint16Corpus) Close() error {
	var all []error
	for _, f := range c.files {
		if err := f.free(); err != nil {
			all = append(all, fmt.Errorf("unmapping %s: %w", f.name, err))
		}
	}
	c.files, c.n = nil, 0
	return errors.Join(all...)
}
