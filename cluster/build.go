package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

// buildID identifies this executable: its version, its system and a hash of its file. All
// processes of a cluster must have the same, because the bits of the weights depend on it.
var buildID = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("identify this build: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("identify this build: %w", err)
	}
	defer f.Close() //nolint:errcheck // nothing was written
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("identify this build: %w", err)
	}
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	return fmt.Sprintf("%s %s/%s %s", version, runtime.GOOS, runtime.GOARCH, hex.EncodeToString(h.Sum(nil)[:8])), nil
})
