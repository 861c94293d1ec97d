package cuda

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// cache is a folder of compiled kernels; the empty one keeps nothing. It is a
// convenience: what goes wrong with it costs a compilation and is no error.
type cache struct{ folder string }

// userCache is the one in the user's folder for caches.
func userCache() cache {
	home, err := os.UserCacheDir()
	if err != nil {
		return cache{}
	}
	return cache{filepath.Join(home, "troupe", "kernels")}
}

// key names what a compilation depends on.
func (cache) key(c *driver.Compiler, target string, file driver.Source, headers []driver.Source) string {
	h := sha256.New()
	major, minor := c.Version()
	fmt.Fprintf(h, "NVRTC %d.%d for %s with %q\n", major, minor, target, kernels.CompileOptions)
	for _, s := range append([]driver.Source{file}, headers...) {
		fmt.Fprintf(h, "%s: %d bytes\n%s", s.Name, len(s.Text), s.Text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// load returns what was stored, if it is there and whole: a file begins with its
// content's hash.
func (c cache) load(key string) ([]byte, bool) {
	if c.folder == "" {
		return nil, false
	}
	raw, err := os.ReadFile(filepath.Join(c.folder, key))
	if err != nil || len(raw) < sha256.Size {
		return nil, false
	}
	image := raw[sha256.Size:]
	sum := sha256.Sum256(image)
	return image, bytes.Equal(raw[:sha256.Size], sum[:])
}

// store writes a new file and gives it its name when it is whole, so that nobody finds
// half of one.
func (c cache) store(key string, image []byte) {
	if c.folder == "" || os.MkdirAll(c.folder, 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(c.folder, "new-*")
	if err != nil {
		return
	}
	sum := sha256.Sum256(image)
	_, err = f.Write(append(sum[:], image...))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.folder, key))
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}
