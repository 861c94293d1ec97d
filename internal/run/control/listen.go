package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
)

// listen makes the socket of a run whose folder this process has locked.
func listen(dir string) (*net.UnixListener, error) {
	near, err := inFolder(dir)
	if err != nil {
		return nil, err
	}
	var l *net.UnixListener
	if near != "" {
		if l, err = listenAt(near); err == nil {
			return l, nil
		}
	}
	// The path is too long, or the file system of the folder has no sockets.
	far, farErr := elsewhere(dir)
	if farErr == nil {
		farErr = makePrivate()
	}
	if farErr == nil {
		l, farErr = listenAt(far)
	}
	if farErr != nil {
		return nil, errors.Join(err, farErr)
	}
	return l, nil
}

// listenAt makes a socket in place of one of a process that has ended.
func listenAt(path string) (*net.UnixListener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is not a socket; remove it", path)
	default:
		if c, err := net.DialTimeout("unix", path, dialTime); err == nil {
			_ = c.Close() // only to learn that somebody listens
			return nil, fmt.Errorf("another process listens at %s", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // Server.Close removes it, if it is still this one
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(path))
	}
	return l, nil
}

// removeSocket removes a socket, unless another one has taken its place.
func removeSocket(path string, own fs.FileInfo) {
	if info, err := os.Lstat(path); err == nil && own != nil && os.SameFile(info, own) {
		_ = os.Remove(path) // the next run replaces it
	}
}
