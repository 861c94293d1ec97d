package checkpoint

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/troupe-ml/troupe/internal/host/folder"
)

const (
	writeBufferBytes = 256 << 10
	// ioBytes is how much is read or written at a time in files to which others write, too.
	ioBytes = 1 << 20
	// fileOverheadBytes is what a file may take on disk beyond its bytes: the rest of its last
	// block, and its lines in the manifest.
	fileOverheadBytes = 4096 + 512
)

// Save writes a checkpoint and returns its folder. If it returns no error the checkpoint is
// durable; otherwise the older checkpoints are still whole. It replaces a checkpoint of the same
// step; until the new one is in place, the old one can be read. The error wraps ErrNoSpace if the
// disk is full.
func (s *Store) Save(ctx context.Context, c Content) (dir string, err error) {
	files, err := c.plan()
	if err != nil {
		return "", fmt.Errorf("cannot write the checkpoint of step %d: %w", c.Step, err)
	}
	tag := ""
	if c.Others != nil {
		tag = c.Others.Tag
	}
	tmp := tmpName(c.Step, tag)
	if err := s.write(ctx, tmp, c, files, func() error { return s.install(tmp, c.Step) }); err != nil {
		return "", fmt.Errorf("write the checkpoint of step %d (%d bytes) to %s: %w", c.Step, spaceFor(files), s.path("."), AsNoSpace(err))
	}
	return s.path(stepName(c.Step)), nil
}

// spaceFor returns the bytes that a folder with files and a manifest takes.
func spaceFor(files []plannedFile) int64 {
	bytes := int64(fileOverheadBytes) // the manifest
	for _, f := range files {
		bytes += f.bytes + fileOverheadBytes
	}
	return bytes
}

// write fills the new folder tmp, which install then gives its name. After an error nothing is left of it.
func (s *Store) write(ctx context.Context, tmp string, c Content, files []plannedFile, install func() error) error {
	if err := folder.MakeAll(s.fsys, s.dir); err != nil {
		return err
	}
	if err := s.fsys.RemoveAll(s.name(tmp)); err != nil {
		return err
	}
	if err := s.checkSpace(spaceFor(files)); err != nil {
		return err
	}
	err := s.fill(ctx, s.name(tmp), c, files)
	if err == nil {
		err = install()
	}
	if err != nil {
		// On a full disk this frees space again.
		return errors.Join(err, s.fsys.RemoveAll(s.name(tmp)))
	}
	return nil
}

// checkSpace refuses, before anything is written, a checkpoint that does not fit. Other programs
// write, too, so the disk may still fill up later.
func (s *Store) checkSpace(bytesNeeded int64) error {
	bytesFree, err := s.fsys.FreeBytes(s.dir)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if bytesFree < bytesNeeded {
		return fmt.Errorf("%w: %d bytes are needed, but only %d are free: free some space or keep fewer checkpoints", ErrNoSpace, bytesNeeded,
			bytesFree)
	}
	return nil
}

// fill writes a whole checkpoint into a new folder, the manifest last.
func (s *Store) fill(ctx context.Context, dir string, c Content, files []plannedFile) error {
	if err := s.fsys.Mkdir(dir); err != nil {
		return err
	}
	sums, err := s.letOthers(ctx, dir, c.Others, files)
	if err != nil {
		return err
	}
	var written []ManifestFile
	for _, f := range files {
		var m ManifestFile
		if f.absent() {
			m, err = s.readBack(ctx, dir, f, sums[f.name])
		} else {
			m, err = s.writeFile(ctx, dir, f)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		written = append(written, m)
	}
	manifest, err := encodeManifest(c.Step, written)
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
	err := folder.WriteSynced(s.fsys, path.Join(dir, f.name), func(w io.Writer) error {
		buffered := bufio.NewWriterSize(io.MultiWriter(contextWriter{ctx, w}, hash), writeBufferBytes)
		if err := f.write(buffered); err != nil {
			return err
		}
		return buffered.Flush()
	})
	return ManifestFile{Name: f.name, Bytes: f.bytes, SHA256: hex.EncodeToString(hash.Sum(nil))}, err
}

// install gives a filled folder its name. The folder that had this name is removed only after the
// new checkpoint has been read back whole.
func (s *Store) install(tmp string, step int) error {
	name := stepName(step)
	replaced := entry{step: step, name: name + replacedSuffix}
	old, err := s.find(step)
	if err != nil {
		return err
	}
	for i, e := range old {
		replaced.folder = e.folder
		if e.replaced {
			continue
		}
		if i+1 < len(old) { // left by a crash, and possibly the better one
			if _, err := s.setAside(replaced.name, name, SupersededSuffix); err != nil {
				return err
			}
		}
		if err := s.fsys.Rename(s.name(name), s.name(replaced.name)); err != nil {
			return err
		}
		break
	}
	if err := s.fsys.Rename(s.name(tmp), s.name(name)); err != nil {
		return err
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return err
	}
	if len(old) == 0 {
		return nil
	}
	if err := s.whole(entry{step: step, name: name}); err != nil {
		return fmt.Errorf("read it back: %w", err)
	}
	return s.retire(replaced)
}

// retire removes the old checkpoint of a step whose new one is whole. It renames anything that Save
// has not made.
func (s *Store) retire(replaced entry) error {
	if replaced.folder {
		return s.discard(replaced.name)
	}
	_, err := s.setAside(replaced.name, stepName(replaced.step), SupersededSuffix)
	return err
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
