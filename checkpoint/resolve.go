package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// meantTries is how often OpenAt and VerifyAt turn to another checkpoint: a run that writes small
// checkpoints may be faster than their reader.
const meantTries = 100

// OpenAt opens the checkpoint that a path refers to; see Resolve. If a continuing run removes it
// meanwhile, OpenAt opens the one that the path refers to by then.
func OpenAt(path string) (c *Checkpoint, err error) {
	drop := func() {
		if c != nil { // its manifest was removed before it was read
			_ = c.Close()
		}
	}
	resolveErr := meant(path, func(dir string) (sure bool) {
		drop()
		c, err = Open(dir)
		return err == nil && c.Manifest != nil
	})
	if resolveErr != nil {
		drop()
		return nil, resolveErr
	}
	return c, err
}

// VerifyAt is Verify for the checkpoint that a path refers to, like OpenAt.
func VerifyAt(path string) (report *Report, err error) {
	resolveErr := meant(path, func(dir string) (sure bool) {
		report, err = Verify(dir)
		return err == nil && report.Intact()
	})
	if resolveErr != nil {
		return nil, resolveErr
	}
	return report, err
}

// meant uses the folder to which a path refers, and tries again if the folder has been removed from
// its place: then an uncertain result was about something half removed.
func meant(path string, use func(dir string) (sure bool)) error {
	for range meantTries {
		dir, err := Resolve(path)
		if err != nil {
			return err
		}
		if useAt(dir, use) {
			return nil
		}
	}
	return nil
}

// useAt uses a folder, and reports whether the use was certain or the folder is still in its place.
// The folder stays open meanwhile: the system may give the number of a removed folder to the next
// new one, and folders are compared by number.
func useAt(dir string, use func(dir string) (sure bool)) (done bool) {
	before, beforeErr := os.Stat(dir)
	if held, err := os.Open(dir); err == nil {
		defer func() { _ = held.Close() }() // only read
		before, beforeErr = held.Stat()
	}
	if use(dir) {
		return true
	}
	after, afterErr := os.Stat(dir)
	return beforeErr == nil && afterErr == nil && os.SameFile(before, after)
}

// Resolve finds the checkpoint that a path refers to: a checkpoint or model folder itself; or a
// run's output folder, or its folder checkpoints/. Then it is the checkpoint that `last` points to,
// otherwise the newest intact one.
func Resolve(path string) (string, error) {
	info, err := statMeant(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s: %w: it is a file: give the folder of a run or of a checkpoint", path, ErrNotCheckpoint)
	}
	if isCheckpoint(path) {
		return path, nil
	}
	fsys, err := OpenFS(path)
	if err != nil {
		return "", err
	}
	found, err := resolve(fsys)
	return found, errors.Join(err, fsys.Close())
}

// statMeant is os.Stat. It tries again if the path is a link that was replaced meanwhile, whose old
// target may have been removed.
func statMeant(path string) (info fs.FileInfo, err error) {
	for range meantTries {
		before, _ := os.Readlink(path) // "": not a link
		info, err = os.Stat(path)
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if after, _ := os.Readlink(path); after == before {
			break
		}
	}
	return info, err
}

func resolve(fsys FS) (string, error) {
	for _, dir := range []string{StoreName, "."} {
		s := &Store{fsys: fsys, dir: dir}
		found, err := s.current()
		if !errors.Is(err, ErrNone) {
			return found, err
		}
	}
	return "", fmt.Errorf("%s: %w and contains none: looked for %s, %s and %s in it, and for %s and %s* in it and in %s/",
		fsys.Path("."), ErrNotCheckpoint, manifestName, modelName, indexName, lastName, stepPrefix, StoreName)
}

func isCheckpoint(path string) bool {
	for _, name := range []string{manifestName, modelName, indexName} {
		if _, err := os.Lstat(filepath.Join(path, name)); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// current returns the checkpoint that `last` points to. Without the pointer, or if that checkpoint
// was removed, it returns the newest intact one.
func (s *Store) current() (path string, err error) {
	for range meantTries {
		step, ok, err := s.Last()
		if err != nil {
			return "", err
		}
		if !ok {
			break
		}
		entries, err := s.find(step)
		if err != nil {
			return "", err
		}
		if len(entries) > 0 && !entries[0].folder { // opening the path would follow a link
			_, err := s.fsys.Sub(s.name(entries[0].name))
			return "", asFault(err)
		}
		if len(entries) > 0 {
			return s.path(entries[0].name), nil
		}
		if now, ok, err := s.Last(); err == nil && ok && now == step {
			break // it was removed, and no run has just replaced it
		}
	}
	entries, err := s.list()
	if err != nil {
		return "", err
	}
	c, _, err := s.first(entries)
	if err != nil {
		return "", err
	}
	return c.Dir(), c.Close()
}
