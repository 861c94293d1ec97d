package data

import (
	"bytes"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"sort"

	"github.com/troupe-ml/troupe/internal/host/sysinfo"
)

// Encoder encodes text. It is safe for concurrent use.
type Encoder interface {
	// Vocab returns the number of ids: they lie in [0, Vocab).
	Vocab() int
	// AppendEncode appends the ids of a text to dst. An error with the methods ByteOffset() int and
	// Unwrap() error is reported with its place in the file.
	AppendEncode(dst []int32, text []byte) ([]int32, error)
	// Cut returns a place in a text of more than most bytes, at most that far from its start, at
	// which it may be cut: encoding both parts gives the ids of the whole. 0: there is none.
	Cut(text []byte, most int) int
}

// Text is the content of files, one after the other.
type Text struct {
	bytes  []byte
	files  []string
	starts []int // start of each file, in bytes
	skips  []int // bytes of each file's content before its text: a byte order mark
	tables []bool
}

// ReadText reads whole files, in order. The text stays in memory, which is the only limit of its
// size. It decompresses files that were compressed with gzip or zstd. A byte order mark at the
// start of a file is not part of its text. Anything but UTF-8 text is ErrNotText, with file and place.
func ReadText(files []string) (*Text, error) { return readUTF8(files, nil, false) }

// ReadRows is ReadText for files of JSON lines, and Parquet files, whose rows are such lines. columns are those of Parquet files to
// read: see parquet.Open.
func ReadRows(files, columns []string) (*Text, error) { return readUTF8(files, columns, true) }

func readUTF8(files, columns []string, tables bool) (*Text, error) {
	t, err := readFiles(files, columns, tables, NotText)
	if err != nil {
		return nil, err
	}
	return t, t.checkUTF8()
}

// checkUTF8 returns an error for the first byte that is not UTF-8, with its place.
func (t *Text) checkUTF8() error {
	for i, name := range t.files {
		begin, end := t.span(i)
		text := t.bytes[begin:end]
		if at, err := notUTF8(text); err != nil {
			return fmt.Errorf("%s, byte %d (line %d): %w", plain(name), at+t.skips[i], 1+bytes.Count(text[:at], []byte("\n")), err)
		}
	}
	return nil
}

// TextOf returns the text of a file's content, as ReadText does, for content that is not in a file,
// such as standard input.
func TextOf(name string, content []byte) ([]byte, error) {
	if err := NotText(name, content); err != nil {
		return nil, err
	}
	t := &Text{bytes: bytes.TrimPrefix(content, byteOrderMark), files: []string{name}, starts: []int{0}, tables: []bool{false}}
	t.skips = []int{len(content) - len(t.bytes)}
	return t.bytes, t.checkUTF8()
}

// ReadBytes is ReadText for content that need not be text.
func ReadBytes(files []string) (*Text, error) {
	return readFiles(files, nil, false, func(string, []byte) error { return nil })
}

// Len returns the number of bytes of the text.
func (t *Text) Len() int64 { return int64(len(t.bytes)) }

// filePart is a file's part of a text.
type filePart struct {
	size, skip int // bytes of its text, and bytes before it
	table      bool
	content    []byte // content of a compressed file or a table; nil: the text is in the file
}

// look examines a file that may add at most most bytes. check judges the start of its content.
func look(name string, columns []string, tables bool, most int64, check func(name string, head []byte) error) (p filePart, err error) {
	size, err := fileSize(name)
	if err != nil {
		return p, err
	}
	head := make([]byte, min(size, headBytes))
	if _, err = readFile(name, 0, head); err != nil {
		return p, err
	}
	table := false
	if tables {
		if table, err = isTable(name, head); err != nil {
			return p, err
		}
	}
	packing, err := packingOf(name, head)
	if err != nil {
		return p, err
	}
	if p.table = table; table || packing != nil {
		if table {
			p.content, err = readTable(name, columns, most)
		} else {
			p.content, err = unpack(name, most)
		}
		if err != nil {
			return p, err
		}
		head, size = p.content[:min(len(p.content), headBytes)], int64(len(p.content))
	}
	if err := check(name, head); err != nil {
		return p, err
	}
	if bytes.HasPrefix(head, byteOrderMark) {
		p.skip = len(byteOrderMark)
	}
	if size -= int64(p.skip); size > most {
		return p, fmt.Errorf("with the %d bytes of %s the text exceeds the %d bytes of this machine's memory: use less text, or token ids (format = \"uint16\"), which are not kept in memory", size, plain(name), most)
	}
	p.size = int(size)
	return p, nil
}

func readFiles(files, columns []string, tables bool, check func(name string, head []byte) error) (*Text, error) {
	t := &Text{files: files, starts: make([]int, len(files)), skips: make([]int, len(files)), tables: make([]bool, len(files))}
	total, most := int64(0), sysinfo.MachineBytes()
	if most == 0 {
		most = math.MaxInt64
	}
	parts := make([]filePart, len(files))
	for i, name := range files {
		var err error
		if parts[i], err = look(name, columns, tables, most-total, check); err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		t.skips[i], t.tables[i] = parts[i].skip, parts[i].table
		total += int64(parts[i].size)
	}
	if total == 0 {
		if len(files) == 1 {
			return nil, fmt.Errorf("%w: %s has 0 bytes of text", ErrEmpty, plain(files[0]))
		}
		return nil, fmt.Errorf("%w: %d text files have 0 bytes in total%s", ErrEmpty, len(files), first(files))
	}
	t.bytes = make([]byte, total)
	at := 0
	for i, name := range files {
		t.starts[i] = at
		p := &parts[i]
		if p.content != nil {
			at += copy(t.bytes[at:], p.content[p.skip:])
			p.content = nil
			continue
		}
		n, err := readFile(name, p.skip, t.bytes[at:at+p.size])
		if err != nil {
			return nil, fmt.Errorf("data file: %w, after %d of its %d bytes (%d of %d bytes of all files)", err, n, p.size, at+n, total)
		}
		at += n
	}
	return t, nil
}

// span returns the range of a file's text.
func (t *Text) span(file int) (begin, end int) {
	if file+1 < len(t.starts) {
		return t.starts[file], t.starts[file+1]
	}
	return t.starts[file], len(t.bytes)
}

// readFile fills dst from a file, starting at byte from, and returns how many bytes it has read.
func readFile(name string, from int, dst []byte) (int, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, plainError(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	n, err := io.ReadFull(io.NewSectionReader(f, int64(from), int64(len(dst))), dst)
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s became shorter while it was read: %w", plain(name), io.ErrUnexpectedEOF)
	}
	return n, err
}

// fileSize returns the size of a regular file. It does not open the file: opening a pipe would wait
// for its writer.
func fileSize(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, plainError(err)
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", plain(name))
	}
	return info.Size(), nil
}

// first names the first file, for messages about all of them.
func first(files []string) string {
	if len(files) == 0 {
		return ""
	}
	return ", the first " + plain(files[0])
}

// Bytes returns the text itself, not a copy.
func (t *Text) Bytes() []byte { return t.bytes }

// Identity returns the identity of the files, without empty ones. A table is identified by its file: its
// text may have only some of its columns.
func (t *Text) Identity() (Identity, error) { return t.contents().identity() }

// Digest returns the hash of all of the text, in files without empty ones. id is its identity, which may have it.
func (t *Text) Digest(id Identity) (string, error) {
	if !id.Sampled {
		return id.SHA256, nil
	}
	return t.contents().digest()
}

func (t *Text) contents() contents {
	var c contents
	var files []int
	for i := range t.starts {
		begin, end := t.span(i)
		n := int64(end - begin)
		if t.tables[i] {
			n, _ = fileSize(t.files[i]) // hashing it reports the error
		}
		if n > 0 {
			files, c.bytes = append(files, i), append(c.bytes, n)
		}
	}
	c.hash = func(h hash.Hash, file int, from, to int64) error {
		i := files[file]
		if t.tables[i] {
			return hashFile(h, t.files[i], from, to-from)
		}
		h.Write(t.bytes[int64(t.starts[i])+from : int64(t.starts[i])+to])
		return nil
	}
	return c
}

// fileAt returns the file to which a byte of the text belongs.
func (t *Text) fileAt(offset int) int {
	// The last file that starts there or before; empty files before it start there, too.
	return sort.Search(len(t.starts), func(i int) bool { return t.starts[i] > offset }) - 1
}

// Position returns the file, and the byte in it, of a byte of the text.
func (t *Text) Position(offset int) (file string, byteInFile int) {
	i := t.fileAt(offset)
	return t.files[i], offset - t.starts[i] + t.skips[i]
}

// Locate adds file and place to an error about a byte of the text: one with the methods ByteOffset
// and Unwrap. It returns other errors unchanged.
func (t *Text) Locate(err error) error { return t.locate(err, 0) }

// locate is Locate for an error about the text starting at byte base.
func (t *Text) locate(err error, base int) error {
	var at interface {
		error
		ByteOffset() int
		Unwrap() error
	}
	if !errors.As(err, &at) {
		return err
	}
	file, offset := t.Position(base + at.ByteOffset())
	return fmt.Errorf("%s, byte %d: %w", plain(file), offset, at.Unwrap())
}

// Encode encodes the files one by one. An id takes one, two or four bytes, depending on the
// vocabulary. The text is not needed afterwards.
func (t *Text) Encode(enc Encoder) (Corpus, error) {
	switch vocab := enc.Vocab(); {
	case vocab <= 1<<8:
		return encode[uint8](t, enc)
	case vocab <= 1<<16:
		return encode[uint16](t, enc)
	default:
		return encode[int32](t, enc)
	}
}

func encode[ID uint8 | uint16 | int32](t *Text, enc Encoder) (Corpus, error) {
	vocab := enc.Vocab()
	// A token has at least one byte, unless a normalizer adds some, so this rarely grows. If tokens
	// have more bytes, the rest of the memory is never touched.
	ids := make(inMemory[ID], 0, len(t.bytes))
	file, at := 0, 0
	next := func() ([]byte, bool) { // yields the pieces of all files
		for ; file < len(t.starts); file++ {
			if _, end := t.span(file); at < end {
				piece := firstPiece(enc, t.bytes[at:end])
				at += len(piece)
				return piece, true
			}
		}
		return nil, false
	}
	done := 0 // bytes of the text encoded so far
	err := EncodeAll(enc, next, func(piece []byte, got []int32, err error) error {
		if err != nil {
			return t.locate(err, done)
		}
		for _, id := range got {
			if id < 0 || int(id) >= vocab {
				name, _ := t.Position(done)
				return fmt.Errorf("%w: encoding %s returned the id %d, but the vocabulary has %d ids", ErrVocab, plain(name), id, vocab)
			}
			ids = append(ids, ID(id))
		}
		done += len(piece)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ids, nil
}

// inMemory is a corpus of ids, with as few bytes for each as the vocabulary allows.
type inMemory[ID uint8 | uint16 | int32] []ID

func (c inMemory[ID]) Len() int64   { return int64(len(c)) }
func (c inMemory[ID]) Close() error { return nil }

func (c inMemory[ID]) Read(dst []int32, off int64) error {
	if err := checkRange(len(dst), off, c.Len()); err != nil {
		return err
	}
	for i, id := range c[off : off+int64(len(dst))] {
		dst[i] = int32(id)
	}
	return nil
}
