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

// Others describes processes that hold the Absent tensors of a checkpoint and see its folder. Each
// writes its own tensors, with WriteOwn, into the files that Save has laid out. The files are
// byte-identical to those that Save would write with all tensors.
type Others struct {
	// Tag identifies the attempt in the name of the unfinished folder. A process that still tries
	// to write for an older attempt finds no such folder.
	Tag string
	// Write makes the other processes write the absent tensors to their places. It returns when
	// they have done so durably, with the Checksum of each, or after an error when no process
	// writes any more. Only after ctx has ended may a process still write; such a folder is never
	// finished.
	Write func(ctx context.Context, places []Place) (sums []uint32, err error)
}

// Place says where the bytes of a tensor go.
type Place struct {
	Tensor        string
	File          string // file of the checkpoint
	Offset, Bytes int64
}

// OthersError lists the tensors that differ from what other processes report to have written. They
// may have written to another folder than this process sees.
type OthersError struct{ Tensors []string }

func (e *OthersError) Error() string {
	return fmt.Sprintf("%d tensors differ from what other processes report to have written, for example %q: check that all processes see the same folder", len(e.Tensors), e.Tensors[0])
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// newChecksum returns the checksum of one tensor on its way over a shared folder, CRC-32C.
// Afterwards the manifest's SHA-256 of the whole file counts.
func newChecksum() hash.Hash32 { return crc32.New(castagnoli) }

// absent reports whether other processes write a part of the file.
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

// letOthers lays out the files that others write to, and waits for them. It returns the checksums
// by file, in the order of its absent tensors.
func (s *Store) letOthers(ctx context.Context, dir string, others *Others, files []plannedFile) (sums map[string][]uint32, err error) {
	var places []Place
	for _, f := range files {
		if !f.absent() {
			continue
		}
		if others == nil {
			return nil, fmt.Errorf("%s: some of its tensors are absent, but no other process writes them", f.name)
		}
		if err := s.layOut(ctx, dir, f); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		for offset, t := range f.tensors.Places() {
			if t.Absent {
				size, _ := t.Size() // checked by plan
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
		return nil, fmt.Errorf("got %d checksums for %d tensors", len(all), len(places))
	}
	sums = make(map[string][]uint32)
	for i, p := range places {
		sums[p.File] = append(sums[p.File], all[i])
	}
	return sums, nil
}

// layOut creates a file in its final size, with all tensors of this process.
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

// readBack reads a file to which others have written, hashes it, and compares their tensors with
// the reported checksums.
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
		return m, fmt.Errorf("the file has %d bytes, but was created with %d", info.Size(), f.bytes)
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
		return m, errors.New("the file's header differs from the one that was written")
	}
	var wrong OthersError
	for _, t := range f.tensors.Places() {
		size, _ := t.Size() // checked by plan
		sum, want := newChecksum(), uint32(0)
		out := io.Discard
		if t.Absent {
			out, want, sums = sum, sums[0], sums[1:]
		}
		if n, err := io.CopyBuffer(onlyWriter{out}, io.LimitReader(in, size), buffer); err != nil || n < size {
			return m, fmt.Errorf("read back tensor %q, %d of %d bytes: %w", t.Name, n, size, orShort(err))
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

// orShort returns the error of a short copy.
func orShort(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// onlyWriter hides io.Discard's ReadFrom, which uses a small buffer.
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

// Own is a tensor of this process for a checkpoint that another process makes.
type Own struct {
	File   string
	Offset int64
	Data   []byte
}

// WriteOwn writes tensors, durably, into the unfinished checkpoint of a step that another process
// makes in the output folder out of fsys, with the given Tag. It creates no file or folder, and
// extends no file. The checksums are those that Others.Write must return.
func WriteOwn(ctx context.Context, fsys FS, out string, step int, tag string, own []Own) (sums []uint32, err error) {
	if err := checkName(tag); err != nil {
		return nil, err
	}
	if step < 0 {
		return nil, fmt.Errorf("a checkpoint cannot have the step %d", step)
	}
	dir := path.Join(out, StoreName, tmpName(step, tag))
	for len(own) > 0 {
		n := 1
		for n < len(own) && own[n].File == own[0].File {
			n++
		}
		more, err := writeOwn(ctx, fsys, dir, own[:n])
		if err != nil {
			return nil, fmt.Errorf("write %d tensors to the checkpoint of step %d: %w", n, step, AsNoSpace(err))
		}
		sums, own = append(sums, more...), own[n:]
	}
	return sums, fsys.SyncDir(dir)
}

// writeOwn writes the tensors of one file.
func writeOwn(ctx context.Context, fsys FS, dir string, own []Own) (sums []uint32, err error) {
	name := own[0].File
	if err := checkName(name); err != nil {
		return nil, err
	}
	if path.Ext(name) != tensorsSuffix {
		return nil, fmt.Errorf("%s is not a %s file", name, tensorsSuffix)
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
			return nil, fmt.Errorf("%s has %d bytes, too few for a tensor of %d bytes at %d", file.Name(), info.Size(), size, t.Offset)
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
			_, _ = sum.Write(piece) // a hash never fails
			data, offset = data[len(piece):], offset+int64(len(piece))
		}
		sums = append(sums, sum.Sum32())
	}
	return sums, file.Sync()
}
