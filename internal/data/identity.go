package data

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
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
