package data

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"slices"
	"sort"
)

// Identity tells whether files have the same content as before, whatever their names and places; or
// whether samples do (see package samples).
type Identity struct {
	Files     int     `json:"files"`
	Samples   int64   `json:"samples,omitempty"`    // for data that consists of samples, which has no Files
	FileBytes []int64 `json:"file_bytes,omitempty"` // of each file, in order; omitted above 64 files
	Bytes     int64   `json:"bytes"`
	// SHA256 is the hash of every file's size and content, in order. Above a gibibyte the contents
	// are sampled: blocks spread over them represent the rest.
	SHA256  string `json:"sha256"`
	Sampled bool   `json:"sampled"`
}

// Limits of what an Identity reads and lists.
const (
	wholeBytesMax    = 1 << 30 // larger files are sampled
	sampleBlocks     = 4096
	sampleBlockBytes = 64 << 10
	listedFilesMax   = 64
)

// contents reads files for their Identity.
type contents struct {
	bytes []int64 // of each file
	// hash adds the bytes [from, to) of a file to a hash.
	hash func(h hash.Hash, file int, from, to int64) error
}

func (c contents) identity() (Identity, error) { return c.identityUpTo(wholeBytesMax) }

// identityUpTo samples files that have more than wholeBytes bytes together.
func (c contents) identityUpTo(wholeBytes int64) (Identity, error) {
	id := Identity{Files: len(c.bytes)}
	starts := make([]int64, len(c.bytes))
	h := sha256.New()
	number(h, int64(id.Files))
	for i, n := range c.bytes {
		starts[i] = id.Bytes
		id.Bytes += n
		number(h, n)
	}
	if id.Files <= listedFilesMax {
		id.FileBytes = c.bytes
	}
	blocks, blockBytes := int64(1), id.Bytes
	if id.Sampled = id.Bytes > wholeBytes; id.Sampled {
		blocks, blockBytes = sampleBlocks, sampleBlockBytes
	}
	for block := range blocks {
		end := share(id.Bytes, block+1, blocks)
		if err := c.between(h, starts, max(share(id.Bytes, block, blocks), end-blockBytes), end); err != nil {
			return Identity{}, err
		}
	}
	id.SHA256 = hex.EncodeToString(h.Sum(nil))
	return id, nil
}

// digest is the hash of an identity that samples nothing.
func (c contents) digest() (string, error) {
	id, err := c.identityUpTo(math.MaxInt64)
	return id.SHA256, err
}

// Unread is text in files that is not in memory. Its Identity and Digest are those of the Text that ReadText would return.
type Unread struct{ contents }

// OpenUnread looks at files. It returns nil if the text of one is not its content: a compressed file has to be read.
func OpenUnread(files []string) (*Unread, error) {
	u := &Unread{}
	var names []string
	var skips []int64
	for _, name := range files {
		size, err := fileSize(name)
		if err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		head := make([]byte, min(size, headBytes))
		if _, err := readFile(name, 0, head); err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		table, err := isTable(name, head)
		if err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		packing, err := packingOf(name, head)
		if err != nil {
			return nil, fmt.Errorf("data file: %w", err)
		}
		if packing != nil || !table && NotText(name, head) != nil { // ReadText explains what is not text
			return nil, nil
		}
		skip := int64(0)
		if bytes.HasPrefix(head, byteOrderMark) {
			skip = int64(len(byteOrderMark))
		}
		if size > skip { // an identity is without empty files
			names, skips, u.bytes = append(names, name), append(skips, skip), append(u.bytes, size-skip)
		}
	}
	u.hash = func(h hash.Hash, file int, from, to int64) error {
		return hashFile(h, names[file], skips[file]+from, to-from)
	}
	return u, nil
}

// Identity returns the identity of the text.
func (u *Unread) Identity() (Identity, error) { return u.identity() }

// Digest returns the hash of all of the text. id is its identity, which may have it.
func (u *Unread) Digest(id Identity) (string, error) {
	if !id.Sampled {
		return id.SHA256, nil
	}
	return u.digest()
}

// RawIdentity returns the identity of files as they lie on the disk: compressed ones are not decompressed.
func RawIdentity(files []string) (Identity, error) {
	c := contents{bytes: make([]int64, len(files)), hash: func(h hash.Hash, file int, from, to int64) error {
		return hashFile(h, files[file], from, to-from)
	}}
	for i, name := range files {
		var err error
		if c.bytes[i], err = fileSize(name); err != nil {
			return Identity{}, fmt.Errorf("data file: %w", err)
		}
	}
	return c.identity()
}

// hashFile adds n bytes of a file to a hash.
func hashFile(h hash.Hash, name string, from, n int64) error {
	f, err := os.Open(name)
	if err != nil {
		return plainError(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	got, err := io.CopyBuffer(struct{ io.Writer }{h}, io.NewSectionReader(f, from, n), make([]byte, 1<<20))
	if err == nil && got != n {
		err = fmt.Errorf("%s became shorter while it was read: %w", plain(name), io.ErrUnexpectedEOF)
	}
	return err
}

func number(h hash.Hash, n int64) {
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// between hashes the bytes [begin, end) of all files, one after the other.
func (c contents) between(h hash.Hash, starts []int64, begin, end int64) error {
	i := sort.Search(len(starts), func(i int) bool { return starts[i] > begin }) - 1
	for ; i >= 0 && i < len(starts) && starts[i] < end; i++ {
		if err := c.hash(h, i, max(begin-starts[i], 0), min(end-starts[i], c.bytes[i])); err != nil {
			return err
		}
	}
	return nil
}

// Difference describes briefly how other differs; "" if it does not.
func (id Identity) Difference(other Identity) string {
	if id.Files == other.Files && id.Samples == other.Samples && id.Bytes == other.Bytes && id.SHA256 == other.SHA256 {
		return ""
	}
	if id.Files == other.Files {
		if !slices.Equal(id.FileBytes, other.FileBytes) && slices.Equal(sorted(id.FileBytes), sorted(other.FileBytes)) {
			return fmt.Sprintf("%s, whose sizes are in another order than before: files are read in the order of their paths", id.size())
		}
		for i := range min(len(id.FileBytes), len(other.FileBytes)) {
			if was, is := id.FileBytes[i], other.FileBytes[i]; was != is {
				return fmt.Sprintf("file %d of %d had %d bytes and now has %d", i+1, id.Files, was, is)
			}
		}
	}
	if id.Files != other.Files || id.Samples != other.Samples || id.Bytes != other.Bytes {
		return fmt.Sprintf("%s before, %s now", id.size(), other.size())
	}
	return fmt.Sprintf("%s as before, but with other content: SHA-256 %.12s… before, %.12s… now", id.size(), id.SHA256, other.SHA256)
}

func sorted(of []int64) []int64 {
	all := slices.Clone(of)
	slices.Sort(all)
	return all
}

func (id Identity) size() string {
	if id.Files == 0 && id.Samples > 0 {
		return fmt.Sprintf("%d samples of %d bytes in total", id.Samples, id.Bytes)
	}
	if id.Files == 1 {
		return fmt.Sprintf("1 file of %d bytes", id.Bytes)
	}
	return fmt.Sprintf("%d files of %d bytes in total", id.Files, id.Bytes)
}
