package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"sort"
	"sync"
)

// A Log has the form of two files, with little-endian numbers. The first has the documents, one after the other:
//
//	ids       idBytes for each
//	learn     a bit for each id; only for documents that are not Text
//
// The second has a header and an entry for each document:
//
//	magic     16 bytes
//	key       32 bytes: the digest of what the ids are made from
//	vocab     4 bytes
//	zeros     8 bytes
//	checksum  4 bytes: the CRC-32C of everything before it
//
//	bytes, ids          8 bytes each: where the document ends in the first file, in bytes and in ids
//	file, row           4 bytes each
//	first, learned      4 bytes each: the first id that is learned, as a target, and how many are
//	flags, sum          4 bytes each: the CRC-32C of the document
//	zeros, checksum     4 bytes each: the CRC-32C of the entry
//
// The files only grow, the first one first. So a process that ends at any time leaves whole documents and perhaps a part of one,
// which OpenLog removes.
const (
	logMagic  = "troupe tokens 1\n"
	logHeader = 64
	logEntry  = 48

	logText  = 1 << 0 // the document is Text
	logTalk  = 1 << 1 // the chat template has rendered it
	logEnd   = 1 << 2 // not a document: there are no more
	logReads = 4096   // entries that are read at a time
)

// limitUnproven bounds the last documents that OpenLog checks: what a crash of the machine may have damaged.
const limitUnproven = 256 << 20

// LogFile is a file that is read at any place and written at its end.
type LogFile interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
	Sync() error
}

// Entry describes a document of a Log.
type Entry struct {
	Bytes, IDs int64 // where it ends
	File, Row  int
	// First is the first id after the document's first one that is learned; 0: none is. Learned is the number of those.
	First, Learned int
	Text, Talk     bool
	Len            int // its ids
	sum            uint32
	start          int64 // its first byte
}

// Log is a growing sequence of documents as token ids on disk. It is safe for concurrent use; only one goroutine at a time
// may append.
type Log struct {
	docs, index LogFile
	vocab       int
	idBytes     int64

	mu       sync.Mutex
	n        int64 // documents
	bytes    int64
	ids      int64
	last     Entry
	complete bool
}

// OpenLog opens a log, or starts one in empty files. Files of another key, vocabulary or format are ErrStored.
func OpenLog(docs, index LogFile, key StoredKey, vocab int) (*Log, error) {
	l := &Log{docs: docs, index: index, vocab: vocab, idBytes: int64(idBytesFor(vocab))}
	header := append([]byte(logMagic), key[:]...)
	header = binary.LittleEndian.AppendUint32(header, uint32(vocab))
	header = append(header, make([]byte, 8)...)
	header = binary.LittleEndian.AppendUint32(header, crc32.Checksum(header, castagnoli))
	size, err := sizeOf(index)
	if err != nil {
		return nil, err
	}
	if size < logHeader { // a crash may have left a part of the header
		if err := errors.Join(index.Truncate(0), docs.Truncate(0)); err != nil {
			return nil, err
		}
		_, err := index.Write(header)
		return l, err
	}
	found := make([]byte, logHeader)
	if _, err := index.ReadAt(found, 0); err != nil {
		return nil, noEOF(err)
	}
	if !bytes.Equal(found, header) {
		return nil, fmt.Errorf("%w: they belong to other data, another tokenizer or version", ErrStored)
	}
	return l, l.recover((size - logHeader) / logEntry)
}

func sizeOf(f LogFile) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// recover finds the whole documents among n entries, and removes what follows them.
func (l *Log) recover(n int64) error {
	size, err := sizeOf(l.docs)
	if err != nil {
		return err
	}
	for ; n > 0; n-- {
		e, flags, err := l.read(n - 1)
		if err != nil || e.Bytes > size {
			continue
		}
		if l.complete = flags&logEnd != 0; l.complete {
			n--
		}
		break
	}
	l.n = n
	if !l.complete {
		if l.n, err = l.prove(n); err != nil {
			return err
		}
	}
	if l.n > 0 {
		if l.last, _, err = l.read(l.n - 1); err != nil {
			return err
		}
	}
	l.bytes, l.ids = l.last.Bytes, l.last.IDs
	if l.complete {
		return nil
	}
	return errors.Join(l.index.Truncate(logHeader+l.n*logEntry), l.docs.Truncate(l.bytes))
}

// prove returns how many of n documents are whole. It looks at the last ones.
func (l *Log) prove(n int64) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	last, _, err := l.read(n - 1)
	if err != nil {
		return 0, err
	}
	from := int64(sort.Search(int(n), func(i int) bool {
		e, _, err := l.read(int64(i))
		return err != nil || e.Bytes >= last.Bytes-limitUnproven
	}))
	var doc Document
	for i := from; i < n; i++ {
		e, _, err := l.read(i)
		if err == nil {
			err = l.document(e, &doc)
		}
		if err != nil { // this one and those after it are read again from the data
			return i, nil //nolint:nilerr // see above
		}
	}
	return n, nil
}

// Len returns the number of documents, the number of their ids, and whether no more follow.
func (l *Log) Len() (documents, ids int64, complete bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n, l.ids, l.complete
}

// Last returns the place of the last document: 0, 0 if there is none.
func (l *Log) Last() (file, row int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last.File, l.last.Row
}

// Append appends documents; their File is the number of the file.
func (l *Log) Append(docs []Document, files []int) error {
	if len(docs) == 0 {
		return nil
	}
	var blob, entries []byte
	e := l.last
	e.Bytes, e.IDs = l.bytes, l.ids
	for i, d := range docs {
		start := len(blob)
		for _, id := range d.IDs {
			if id < 0 || int(id) >= l.vocab {
				return fmt.Errorf("%w: encoding returned the id %d, but the vocabulary has %d ids", ErrVocab, id, l.vocab)
			}
		}
		blob = appendIDs(blob, d.IDs, int(l.idBytes))
		e.First, e.Learned = 0, 0
		for k, learn := range d.Learn {
			if k > 0 && learn {
				if e.Learned++; e.First == 0 {
					e.First = k
				}
			}
		}
		if !d.Text {
			for k := 0; k < len(d.Learn); k += 8 {
				bits := byte(0)
				for j, learn := range d.Learn[k:min(k+8, len(d.Learn))] {
					if learn {
						bits |= 1 << j
					}
				}
				blob = append(blob, bits)
			}
		}
		e.Bytes, e.IDs, e.File, e.Row = l.bytes+int64(len(blob)), e.IDs+int64(len(d.IDs)), files[i], d.Row
		e.Text, e.Talk, e.Len, e.start = d.Text, d.Talk, len(d.IDs), l.bytes+int64(start)
		e.sum = crc32.Checksum(blob[start:], castagnoli)
		entries = appendEntry(entries, e, 0)
	}
	if _, err := l.docs.Write(blob); err != nil {
		return err
	}
	if _, err := l.index.Write(entries); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.bytes, l.ids, l.last = l.n+int64(len(docs)), e.Bytes, e.IDs, e
	return nil
}

// Finish says that no more documents follow, and makes all of them durable.
func (l *Log) Finish() error {
	if err := l.docs.Sync(); err != nil {
		return err
	}
	if _, err := l.index.Write(appendEntry(nil, Entry{Bytes: l.bytes, IDs: l.ids}, logEnd)); err != nil {
		return err
	}
	if err := l.index.Sync(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.complete = true
	return nil
}

func appendEntry(dst []byte, e Entry, flags uint32) []byte {
	from := len(dst)
	if e.Text {
		flags |= logText
	}
	if e.Talk {
		flags |= logTalk
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Bytes))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.IDs))
	for _, v := range []uint32{uint32(e.File), uint32(e.Row), uint32(e.First), uint32(e.Learned), flags, e.sum, 0} {
		dst = binary.LittleEndian.AppendUint32(dst, v)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// read reads an entry, and the end of the one before it.
func (l *Log) read(i int64) (e Entry, flags uint32, err error) {
	var b [2 * logEntry]byte
	from := b[:]
	if i == 0 {
		from = b[logEntry:]
	}
	if _, err := l.index.ReadAt(from, logHeader+(i+1)*logEntry-int64(len(from))); err != nil {
		return e, 0, noEOF(err)
	}
	return parseEntries(b[:logEntry], b[logEntry:], i)
}

// parseEntries parses an entry after the one before it, which is zero for the first one.
func parseEntries(before, b []byte, i int64) (e Entry, flags uint32, err error) {
	number := func(at int) int { return int(binary.LittleEndian.Uint32(b[at:])) }
	damaged := func(b []byte) bool {
		return crc32.Checksum(b[:logEntry-4], castagnoli) != binary.LittleEndian.Uint32(b[logEntry-4:])
	}
	if damaged(b) || i > 0 && damaged(before) {
		return e, 0, fmt.Errorf("%w: the entry of document %d is damaged; remove the folder with them, and start again", ErrStored, i+1)
	}
	flags = uint32(number(32))
	e = Entry{Bytes: int64(binary.LittleEndian.Uint64(b)), IDs: int64(binary.LittleEndian.Uint64(b[8:])), File: number(16), Row: number(20),
		First: number(24), Learned: number(28), Text: flags&logText != 0, Talk: flags&logTalk != 0, sum: uint32(number(36))}
	e.start = int64(binary.LittleEndian.Uint64(before))
	n := e.IDs - int64(binary.LittleEndian.Uint64(before[8:]))
	if e.start < 0 || e.Bytes < e.start || n < 0 || n > e.Bytes-e.start {
		return e, 0, fmt.Errorf("%w: document %d is said to have %d ids in %d bytes", ErrStored, i+1, n, e.Bytes-e.start)
	}
	e.Len = int(n)
	return e, flags, nil
}

// Entries reads the entries from one on, up to n of them, and up to logReads in a call.
func (l *Log) Entries(from, n int64) ([]Entry, error) {
	have, _, _ := l.Len()
	n = min(n, have-from, logReads)
	if from < 0 || n <= 0 {
		return nil, nil
	}
	b := make([]byte, (n+1)*logEntry)
	part := b
	if from == 0 {
		part = b[logEntry:]
	}
	if _, err := l.index.ReadAt(part, logHeader+(from+n)*logEntry-int64(len(part))); err != nil {
		return nil, noEOF(err)
	}
	all := make([]Entry, n)
	for i := range all {
		var err error
		if all[i], _, err = parseEntries(b[i*logEntry:][:logEntry], b[(i+1)*logEntry:][:logEntry], from+int64(i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Read reads a document of an entry into doc, whose memory it uses again.
func (l *Log) Read(e Entry, doc *Document) error { return l.document(e, doc) }

func (l *Log) document(e Entry, doc *Document) error {
	want := int64(e.Len) * l.idBytes
	if !e.Text {
		want += int64(e.Len+7) / 8
	}
	size, err := sizeOf(l.docs)
	if err != nil {
		return err
	}
	if e.Bytes-e.start != want || e.Bytes > size {
		return fmt.Errorf("%w: a document of %d ids has %d bytes", ErrStored, e.Len, e.Bytes-e.start)
	}
	b := make([]byte, want)
	if _, err := l.docs.ReadAt(b, e.start); err != nil {
		return noEOF(err)
	}
	if crc32.Checksum(b, castagnoli) != e.sum {
		return fmt.Errorf("%w: the checksum of the document of row %d is wrong", ErrStored, e.Row)
	}
	doc.Text, doc.Talk, doc.Row = e.Text, e.Talk, e.Row
	doc.IDs, doc.Learn = doc.IDs[:0], doc.Learn[:0]
	if doc.IDs, err = l.decode(doc.IDs, b[:int64(e.Len)*l.idBytes]); err != nil {
		return err
	}
	bits := b[int64(e.Len)*l.idBytes:]
	for i := range e.Len {
		doc.Learn = append(doc.Learn, e.Text || bits[i/8]>>(i%8)&1 != 0)
	}
	return nil
}

// decode appends the ids of bytes.
func (l *Log) decode(dst []int32, b []byte) ([]int32, error) {
	for ; len(b) > 0; b = b[l.idBytes:] {
		var id uint32
		switch l.idBytes {
		case 1:
			id = uint32(b[0])
		case 2:
			id = uint32(binary.LittleEndian.Uint16(b))
		default:
			id = binary.LittleEndian.Uint32(b)
		}
		if int64(id) >= int64(l.vocab) {
			return dst, fmt.Errorf("%w: found id %d, but the vocabulary has %d ids", ErrStored, id, l.vocab)
		}
		dst = append(dst, int32(id))
	}
	return dst, nil
}

// Joined reads ids of a log of which all documents are Text, from one on.
func (l *Log) Joined(dst []int32, off int64) error {
	n, ids, _ := l.Len()
	if err := checkRange(len(dst), off, ids); err != nil {
		return err
	}
	// The first document that ends after off.
	i := int64(sort.Search(int(n), func(i int) bool {
		e, _, err := l.read(int64(i))
		return err == nil && e.IDs > off
	}))
	var doc Document
	for len(dst) > 0 {
		e, _, err := l.read(i)
		if err != nil {
			return err
		}
		if !e.Text {
			return fmt.Errorf("%w: the document of row %d is not a text", ErrStored, e.Row)
		}
		if err := l.document(e, &doc); err != nil {
			return err
		}
		skip := off - (e.IDs - int64(e.Len))
		if skip < 0 || skip > int64(e.Len) {
			return fmt.Errorf("%w: the ids of document %d are not where its entry says", ErrStored, i+1)
		}
		k := copy(dst, doc.IDs[skip:])
		dst, off, i = dst[k:], off+int64(k), i+1
	}
	return nil
}

// Close closes the files.
func (l *Log) Close() error { return errors.Join(l.docs.Close(), l.index.Close()) }

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
