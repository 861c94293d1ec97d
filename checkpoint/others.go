package checkpoint

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"path"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Others are processes that hold tensors of a checkpoint, those that are Absent, and see
// its folder: each writes its own into the files that Save has laid out, with WriteOwn. The
// files are the same, to the byte, as if Save had all tensors.
type Others struct {
	// Tag names the attempt, in the name of the unfinished folder: whoever still means to
	// write for an older one finds no such folder.
	Tag string
	// Write lets them write the absent tensors to their places. It returns when they have,
	// durably, with the Checksum of each; after an error of its own, when nobody writes any
	// more. Only where ctx has ended somebody may still be at it: no such folder is finished.
	Write func(ctx context.Context, places []Place) (sums []uint32, err error)
}

// Place is where the bytes of a tensor go.
type Place struct {
	Tensor        string
	File          string // of the checkpoint
	Offset, Bytes int64
}

// OthersError says which tensors are not what others say they have written: they may not
// write to the folder that is seen here.
type OthersError struct{ Tensors []string }

func (e *OthersError) Error() string {
	return fmt.Sprintf("%d tensors read back are not what other processes say they have written, %q for one", len(e.Tensors), e.Tensors[0])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newChecksum is the checksum of one tensor on its way over a shared folder, CRC-32C: what
// counts later is the manifest's SHA-256 of the whole file.
func newChecksum() hash.Hash32 { return crc32.New(castagnoli) }

// absent reports whether others write some of the file.
func (f *plannedFile) absent() bool {
	if f.tensors != nil {
		for _, t := range f.tensors.Places() {
			if t.Absent {
				return true
			}
		}
	}
	return false
}

// letOthers lays out the files that others write to, and lets them. It returns the checksums by
// file, in the order of its absent tensors.
func (s *Store) letOthers(ctx context.Context, dir string, others *Others, files []plannedFile) (sums map[string][]uint32, err error) {
	var places []Place
	for _, f := range files {
		if !f.absent() {
			continue
		}
		if others == nil {
			return nil, fmt.Errorf("%s: some of its tensors are absent, and nobody writes them", f.name)
		}
		if err := s.layOut(ctx, dir, f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		for offset, t := range f.tensors.Places() {
			if t.Absent {
				size, _ := t.Size() // which the plan has looked at
				places = append(places, Place{Tensor: t.Name, File: f.name, Offset: offset, Bytes: size})
			}
		}
	}
	if len(places) == 0 {
		return nil, nil
	}
	if err := s.fsys.SyncDir(dir); err != nil {
		return nil, err
	}
	all, err := others.Write(ctx, places)
	if err != nil {
		return nil, err
	}
	if len(all) != len(places) {
		return nil, fmt.Errorf("%d checksums of %d tensors", len(all), len(places))
	}
	sums = make(map[string][]uint32)
	for i, p := range places {
		sums[p.File] = append(sums[p.File], all[i])
	}
	return sums, nil
}

// layOut makes a file of its final size, with all that is here.
func (s *Store) layOut(ctx context.Context, dir string, f plannedFile) (err error) {
	file, err := s.fsys.Create(path.Join(dir, f.name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(f.bytes); err != nil {
		return err
	}
	if _, err := file.WriteAt(f.tensors.Header(), 0); err != nil {
		return err
	}
	for offset, t := range f.tensors.Places() {
		if t.Absent {
			continue
		}
		w := bufio.NewWriterSize(contextWriter{ctx, io.NewOffsetWriter(file, offset)}, writeBufferBytes)
		if _, err := t.WriteTo(w); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return file.Sync()
}

// readBack reads a file that others have written to, hashes it, and compares what they
// wrote with what they say.
func (s *Store) readBack(ctx context.Context, dir string, f plannedFile, sums []uint32) (m ManifestFile, err error) {
	file, err := s.fsys.Open(path.Join(dir, f.name))
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return m, err
	}
	if info.Size() != f.bytes {
		return m, fmt.Errorf("it has %d bytes, and was laid out with %d", info.Size(), f.bytes)
	}
	whole, err := folder.Whole(file)
	if err != nil {
		return m, err
	}
	sha := sha256.New()
	in, buffer := io.TeeReader(contextReader{ctx, whole}, sha), make([]byte, ioBytes)
	header := make([]byte, len(f.tensors.Header()))
	if _, err := io.ReadFull(in, header); err != nil {
		return m, err
	}
	if !bytes.Equal(header, f.tensors.Header()) {
		return m, errors.New("its header is not the one that was written")
	}
	var wrong OthersError
	for _, t := range f.tensors.Places() {
		size, _ := t.Size() // which the plan has looked at
		sum, want := newChecksum(), uint32(0)
		out := io.Discard
		if t.Absent {
			out, want, sums = sum, sums[0], sums[1:]
		}
		if n, err := io.CopyBuffer(onlyWriter{out}, io.LimitReader(in, size), buffer); err != nil || n < size {
			return m, fmt.Errorf("reading back tensor %q, %d of %d bytes: %w", t.Name, n, size, orShort(err))
		}
		if t.Absent && sum.Sum32() != want {
			wrong.Tensors = append(wrong.Tensors, t.Name)
		}
	}
	if len(wrong.Tensors) > 0 {
		return m, &wrong
	}
	return ManifestFile{Name: f.name, Bytes: f.bytes, SHA256: hex.EncodeToString(sha.Sum(nil))}, nil
}

// orShort is the error of a copy that is short.
func orShort(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// onlyWriter hides io.Discard's ReadFrom, which brings a small buffer of its own.
type onlyWriter struct{ io.Writer }

// contextReader stops a long read when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Own is a tensor of this process for a checkpoint that another one makes.
type Own struct {
	File   string
	Offset int64
	Data   []byte
}

// WriteOwn writes tensors into the unfinished checkpoint of a step that another process
// makes in an output folder, named in fsys, with that Tag, and makes them durable. It makes no file and
// no folder, and no file longer. The sums are those that Others.Write has to tell.
func WriteOwn(ctx context.Context, fsys FS, out string, step int, tag string, own []Own) (sums []uint32, err error) {
	if err := checkName(tag); err != nil {
		return nil, err
	}
	if step < 0 {
		return nil, fmt.Errorf("a checkpoint of step %d", step)
	}
	dir := path.Join(out, StoreName, tmpName(step, tag))
	for len(own) > 0 {
		n := 1
		for n < len(own) && own[n].File == own[0].File {
			n++
		}
		more, err := writeOwn(ctx, fsys, dir, own[:n])
		if err != nil {
			return nil, fmt.Errorf("writing %d tensors to the checkpoint of step %d: %w", n, step, AsNoSpace(err))
		}
		sums, own = append(sums, more...), own[n:]
	}
	return sums, fsys.SyncDir(dir)
}

// writeOwn writes tensors of one file.
func writeOwn(ctx context.Context, fsys FS, dir string, own []Own) (sums []uint32, err error) {
	name := own[0].File
	if err := checkName(name); err != nil {
		return nil, err
	}
	if path.Ext(name) != tensorsSuffix {
		return nil, fmt.Errorf("%s is no %s file", name, tensorsSuffix)
	}
	file, err := fsys.Update(path.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	for _, t := range own {
		if size := int64(len(t.Data)); t.Offset < 0 || size > info.Size() || t.Offset > info.Size()-size {
			return nil, fmt.Errorf("%s has %d bytes: a tensor of %d at %d is not in it", file.Name(), info.Size(), size, t.Offset)
		}
		sum := newChecksum()
		for data, offset := t.Data, t.Offset; len(data) > 0; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			piece := data[:min(len(data), ioBytes)]
			if _, err := file.WriteAt(piece, offset); err != nil {
				return nil, err
			}
			_, _ = sum.Write(piece) // a hash takes all
			data, offset = data[len(piece):], offset+int64(len(piece))
		}
		sums = append(sums, sum.Sum32())
	}
	return sums, file.Sync()
}
