package checkpoint

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

const (
	writeBufferBytes = 256 << 10
	// fileOverheadBytes is what a file may take on the disk beyond its bytes: the
	// rest of its last block, and its lines of the manifest.
	fileOverheadBytes = 4096 + 512
)

// Save writes a checkpoint and returns its folder. When it returns without an
// error the checkpoint is durable; with one, the older checkpoints are whole.
// A checkpoint of the same step is replaced, and until the new one is in place
// the old one can be read.
func (s *Store) Save(ctx context.Context, c Content) (dir string, err error) {
	files, err := c.plan()
	if err != nil {
		return "", fmt.Errorf("the checkpoint of step %d cannot be written: %w", c.Step, err)
	}
	bytesNeeded := int64(fileOverheadBytes) // the manifest
	for _, f := range files {
		bytesNeeded += f.bytes + fileOverheadBytes
	}
	if err := s.write(ctx, c.Step, files, bytesNeeded); err != nil {
		return "", fmt.Errorf("writing the checkpoint of step %d (%d bytes) to %s: %w", c.Step, bytesNeeded, s.dir, asNoSpace(err))
	}
	return s.path(stepName(c.Step)), nil
}

func (s *Store) write(ctx context.Context, step int, files []plannedFile, bytesNeeded int64) error {
	if err := makeDirs(s.fsys, s.dir); err != nil {
		return err
	}
	tmp := tmpPrefix + stepName(step)
	if err := s.fsys.RemoveAll(s.path(tmp)); err != nil {
		return err
	}
	if err := s.checkSpace(bytesNeeded); err != nil {
		return err
	}
	err := s.fill(ctx, s.path(tmp), step, files)
	if err == nil {
		err = s.install(tmp, step)
	}
	if err != nil {
		// On a full disk this makes room again.
		return errors.Join(err, s.fsys.RemoveAll(s.path(tmp)))
	}
	return nil
}

// checkSpace refuses before a byte is written what can't fit. Other programs
// write too, so the disk may still fill up later.
func (s *Store) checkSpace(bytesNeeded int64) error {
	bytesFree, err := s.fsys.FreeBytes(s.dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if bytesFree < bytesNeeded {
		return fmt.Errorf("%w: %d bytes are needed, %d are free; free some or keep fewer checkpoints", ErrNoSpace, bytesNeeded, bytesFree)
	}
	return nil
}

// fill writes a whole checkpoint into a new folder, the manifest last.
func (s *Store) fill(ctx context.Context, dir string, step int, files []plannedFile) error {
	if err := s.fsys.Mkdir(dir); err != nil {
		return err
	}
	var written []ManifestFile
	for _, f := range files {
		m, err := s.writeFile(ctx, dir, f)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		written = append(written, m)
	}
	manifest, err := encodeManifest(step, written)
	if err != nil {
		return err
	}
	if _, err := s.writeFile(ctx, dir, planBytes(manifestName, manifest)); err != nil {
		return fmt.Errorf("%s: %w", manifestName, err)
	}
	return s.fsys.SyncDir(dir)
}

// writeFile writes one file durably and hashes it on the way.
func (s *Store) writeFile(ctx context.Context, dir string, f plannedFile) (ManifestFile, error) {
	hash := sha256.New()
	err := writeSynced(s.fsys, filepath.Join(dir, f.name), func(w io.Writer) error {
		buffered := bufio.NewWriterSize(io.MultiWriter(contextWriter{ctx, w}, hash), writeBufferBytes)
		if err := f.write(buffered); err != nil {
			return err
		}
		return buffered.Flush()
	})
	return ManifestFile{Name: f.name, Bytes: f.bytes, SHA256: hex.EncodeToString(hash.Sum(nil))}, err
}

// install gives a filled folder its name.
func (s *Store) install(tmp string, step int) error {
	name := stepName(step)
	replaced := name + replacedSuffix
	var plainThere, replacedThere bool
	entries, err := s.list()
	if err != nil {
		return err
	}
	for _, e := range entries {
		plainThere = plainThere || e.name == name
		replacedThere = replacedThere || e.name == replaced
	}
	if plainThere {
		if replacedThere { // left by a crash, and older than the plain one
			if err := s.discard(replaced); err != nil {
				return err
			}
		}
		if err := s.fsys.Rename(s.path(name), s.path(replaced)); err != nil {
			return err
		}
		replacedThere = true
	}
	if err := s.fsys.Rename(s.path(tmp), s.path(name)); err != nil {
		return err
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return err
	}
	if replacedThere {
		return s.discard(replaced)
	}
	return nil
}

// contextWriter stops a long write when its context ends.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(p)
}
