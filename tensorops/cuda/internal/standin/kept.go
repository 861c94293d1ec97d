package standin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// limitKept is how many libraries are kept, the newest: each change of a source makes another one.
const limitKept = 8

// keptSuffix ends the names of kept libraries.
const keptSuffix = ".so"

// kept is where compiled libraries are kept for other test binaries and later runs; "" where there is no such folder. It is
// asked for at the start, since tests have caches of their own.
var kept = func() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "troupe", "standin")
}()

// take copies the kept library of a key to a path, and reports whether there was one. The copy is the caller's: what is kept
// may go at any time.
func take(key, to string) bool {
	if kept == "" {
		return false
	}
	image, err := os.ReadFile(filepath.Join(kept, key+keptSuffix))
	return err == nil && os.WriteFile(to, image, 0o700) == nil
}

// keep keeps a library. That it can't costs the next process a compilation, and is no error. Several may do it at once: each
// file comes whole, by its renaming.
func keep(key, library string) {
	if kept == "" || os.MkdirAll(kept, 0o700) != nil {
		return
	}
	image, err := os.ReadFile(library)
	if err != nil {
		return
	}
	f, err := os.CreateTemp(kept, "new-*")
	if err != nil {
		return
	}
	defer func() { _ = os.Remove(f.Name()) }() // unless it is renamed
	_, err = f.Write(image)
	if end := f.Close(); err != nil || end != nil {
		return
	}
	if os.Rename(f.Name(), filepath.Join(kept, key+keptSuffix)) == nil {
		prune()
	}
}

// prune removes the oldest libraries.
func prune() {
	entries, err := os.ReadDir(kept)
	if err != nil {
		return
	}
	var all []fs.FileInfo
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), keptSuffix) {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return b.ModTime().Compare(a.ModTime()) })
	for _, info := range all[min(limitKept, len(all)):] {
		_ = os.Remove(filepath.Join(kept, info.Name()))
	}
}

// keyOf is of all that a library is made from: the compiler, its options, and the files of folders.
func keyOf(ctx context.Context, compiler string, options []string, folders ...fs.FS) (string, error) {
	version, err := exec.CommandContext(ctx, compiler, "-v").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s -v: %w", compiler, err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n", compiler, version, options)
	for _, folder := range folders {
		err := fs.WalkDir(folder, ".", func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := fs.ReadFile(folder, path)
			fmt.Fprintf(h, "%s: %d bytes\n%s", path, len(text), text)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
