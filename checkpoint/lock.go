package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

const LockName = ".lock"

// Lock is the right of one process to write into an output folder.
type Lock struct {
	folder *folder.Folder
	file   *os.File
}

// LockDir locks the output folder, and creates it if it does not exist. ErrLocked names the process
// that has the lock. The lock ends with Unlock or with the process. The lock file stays; only the
// lock on it counts.
func LockDir(out string) (*Lock, error) {
	// Durably: if the folder is lost, so are its checkpoints.
	if err := folder.Make(out); err != nil {
		return nil, fmt.Errorf("create the output folder: %w", err)
	}
	dir, err := folder.Open(out)
	if err != nil {
		return nil, fmt.Errorf("lock the output folder: %w", folder.Unreadable(err))
	}
	l := &Lock{folder: dir}
	file, held, err := dir.Lock(LockName)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the output folder: %w", folder.Unreadable(err)), dir.Close())
	}
	l.file = file
	if !held {
		err = fmt.Errorf("%w: %s, by %s: stop that run or choose another folder", ErrLocked, out, holder(file))
	} else {
		err = sign(file)
	}
	if err != nil {
		return nil, errors.Join(err, l.Unlock())
	}
	return l, nil
}

// FS returns the locked folder, even if its path leads elsewhere by now. Unlock closes it.
func (l *Lock) FS() FS { return l.folder }

// Unlock releases the lock.
func (l *Lock) Unlock() error { return errors.Join(l.file.Close(), l.folder.Close()) }

const signature = "pid %d since %s\n"

// sign writes the holder of the lock into its file.
func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := fmt.Fprintf(f, signature, os.Getpid(), clock.Now().UTC().Format(time.RFC3339))
	return err
}

// Holder returns the process that has the lock of an output folder, such as "process 12 since …"; "": no process has
// it. It changes nothing.
func Holder(out string) (who string, err error) {
	dir, err := folder.Open(out)
	if err != nil {
		return "", folder.Unreadable(err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	file, held, err := dir.Locked(LockName)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", folder.Unreadable(err)
	}
	if held {
		who = holder(file)
	}
	return who, file.Close()
}

// holder reads the holder of the lock. A process that has just taken it may not have written its id
// yet.
func holder(f io.Reader) string {
	var pid int
	var since string
	if _, err := fmt.Fscanf(io.LimitReader(f, pointerBytesMax), signature, &pid, &since); err != nil {
		return "a process that has not written its id yet"
	}
	return fmt.Sprintf("process %d since %q", pid, since)
}
