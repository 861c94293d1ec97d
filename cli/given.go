package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// busy explains an address that another process uses. flag is where the user gave the address. The result wraps err; any other error,
// or nil, is returned unchanged.
func busy(err error, flag string) error {
	var op *net.OpError
	if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &op) || op.Addr == nil {
		return err
	}
	return words.Explained(err, fmt.Sprintf("%s is in use by another process; choose another address with %s", op.Addr, flag))
}

// busyNode is busy for a process with --listen and --data-address.
func busyNode(err error, dataListen string) error {
	var op *net.OpError
	if at, none := net.ResolveTCPAddr("tcp", dataListen); dataListen != "" && none == nil && errors.As(err, &op) && op.Addr != nil &&
		op.Addr.String() == at.String() {
		return busy(err, "--data-address")
	}
	return busy(err, "--listen")
}

// existing explains a path that must be new and exists. The result wraps err; any other error, or nil, is returned unchanged.
func existing(err error, where, kind, path string) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return words.Explained(err,
		fmt.Sprintf("%s: the %s %q exists already; choose another %s, or move this one away", where, kind, path, kind))
}

// missingConfig explains a config file that does not exist, and suggests one beside it. Any other error is returned
// unchanged.
func missingConfig(err error, path string) error {
	told := folder.Missing(err, "CONFIG", "config file", path)
	if !errors.Is(err, fs.ErrNotExist) || exists(path) {
		return err
	}
	if key, value, isKey := strings.Cut(path, "="); isKey {
		if known, note := config.Synonym(key); known != "" && note == "" {
			return fmt.Errorf("%w; to override a key of the config, write --set %s", told, shellWord(known+"="+value))
		}
	}
	if run := runFolder(path); run != "" {
		return fmt.Errorf("%w, did you mean %s?", told, run)
	}
	dir, base := filepath.Split(path)
	files, _ := filepath.Glob(filepath.Join(dir, "*.toml")) // a bad pattern finds none
	names := make([]string, len(files))
	for i, file := range files {
		names[i] = filepath.Base(file)
	}
	hint := didYouMean(base, names, dir)
	if hint == "" && len(names) == 1 {
		hint = ", did you mean " + dir + names[0] + "?"
	}
	return fmt.Errorf("%w%s", told, hint)
}
