// Package journal keeps the runs in progress of a coordinator in its folder, for the coordinator
// that is started there next. Of a run it knows what was submitted and what was requested since; it
// must never know workers or connections.
package journal

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Files in a coordinator's folder.
const (
	runsFile    = "runs.json"
	addressFile = "address" // where the coordinator is reached, while there is one
	lockFile    = "coordinator.lock"
	startsFile  = "starts" // how many coordinators were started on the folder
)

// RunIDBytes is the length of a run's id, before it is written in hexadecimal digits.
const RunIDBytes = 4

// IsRunID reports whether a text is a run's id.
func IsRunID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == RunIDBytes && strings.ToLower(id) == id
}

// Limits of the folder's files.
const (
	// LimitRuns is how many runs there may be.
	LimitRuns = 256
	// limitRequests is how many requests of a run are kept: troupe.LimitRequests, and one of each kind that names no step.
	limitRequests = troupe.LimitRequests + 8
	// limitBytes bounds the file of the runs in progress, limitLineBytes those of one line.
	limitBytes     = 64 << 20
	limitLineBytes = 512
)

// State says how far a run had come when it was last noted. It is noted before that is done
// which it allows, so that a coordinator that dies in between loses no run.
type State string

const (
	// Submitted: nothing was done yet. The run is taken up as it was asked for.
	Submitted State = "submitted"
	// Beginning: its folder was looked at, and may have been written to since. That it had to be
	// empty is not asked again.
	Beginning State = "beginning"
	// Begun: it goes on from its newest checkpoint.
	Begun State = "begun"
)

// ErrDamaged: the file of the runs in progress can't be used as it stands.
var ErrDamaged = errors.New("damaged")

// Entry is a run in progress, as it is kept over the coordinator's death.
type Entry struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	By            string `json:"by"`
	Folder        string `json:"folder"` // that relative paths are relative to
	Config        string `json:"config"` // resolved, as TOML
	AcceptNewData bool   `json:"accept_new_data"`
	Workers       int    `json:"workers"` // that it had
	Submitted     string `json:"submitted"`
	Stopping      bool   `json:"stopping"` // somebody has asked it to end
	// Requests were asked of it and are not done: see troupe.Run.Requests.
	Requests []troupe.Change `json:"requests"`

	// As it was asked for, which counts until it has begun.
	Fresh    bool  `json:"fresh"`
	FromStep int   `json:"from_step"`
	State    State `json:"state"`

	version uint64 // of the file that it was read from, while that is read
}

// same reports whether nothing of an entry has changed.
func (e Entry) same(o Entry) bool {
	requests := slices.Equal(e.Requests, o.Requests)
	e.Requests, o.Requests = nil, nil
	return requests && reflect.DeepEqual(e, o)
}

// Journal is the runs in progress, on the disk. Its methods are called one after the other.
type Journal struct {
	dir     folder.FS
	lock    *os.File
	entries []Entry
}

// Open takes the folder of a coordinator for this process, and reads the runs that
// were in progress when the last one ended.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the coordinator's folder: %w", err)
	}
	f, err := folder.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("the coordinator's folder: %w", err)
	}
	j := &Journal{dir: f}
	var held bool
	if j.lock, held, err = f.Lock(lockFile); err == nil && !held {
		err = fmt.Errorf("another coordinator uses %s: end it, or give this one a folder of its own", dir)
	}
	if err == nil {
		j.entries, err = read(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the coordinator's folder: %w", err), j.Close())
	}
	return j, nil
}

// Entries are the runs in progress. They must not be changed.
func (j *Journal) Entries() []Entry { return j.entries }

// Through has the journal write through another file system, and returns the one before: tests have
// disks that are full.
func (j *Journal) Through(dir folder.FS) (before folder.FS) {
	before, j.dir = j.dir, dir
	return before
}

// Close lets another coordinator have the folder.
func (j *Journal) Close() error {
	err := j.dir.Close()
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	return err
}

// Announce writes where the coordinator is reached; "": nowhere any more.
func (j *Journal) Announce(address string) error {
	if address == "" {
		return j.dir.RemoveAll(addressFile)
	}
	return folder.Replace(j.dir, addressFile, func(w io.Writer) error {
		_, err := io.WriteString(w, address+"\n")
		return err
	})
}

// attemptsOfStart is how many attempts a coordinator numbers before it reaches the numbers of the next
// one that is started.
const attemptsOfStart = 1 << 32

// FirstAttempt is the number below those of this coordinator's attempts, which are above those of all
// coordinators of the folder before it, whatever the clock says.
func (j *Journal) FirstAttempt() (uint64, error) {
	text, err := folder.ReadFile(j.dir, startsFile, limitLineBytes)
	starts := uint64(0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		if starts, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31); err != nil {
			err = fmt.Errorf("%s, the number of starts: %w; remove it, or write a number below %d", j.dir.Path(startsFile), err, 1<<31)
		}
	}
	if err == nil {
		err = folder.Replace(j.dir, startsFile, func(w io.Writer) error {
			_, err := fmt.Fprintln(w, starts+1)
			return err
		})
	}
	return (starts + 1) * attemptsOfStart, err
}

// AddressIn is where the coordinator of a folder is reached, which is on this host.
func AddressIn(dir string) (string, error) {
	f, err := folder.Open(dir)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	text, err := folder.ReadFile(f, addressFile, limitLineBytes)
	return strings.TrimSpace(string(text)), err
}

func read(f folder.FS) ([]Entry, error) {
	text, err := folder.ReadFile(f, runsFile, limitBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := decode(text)
	if err != nil {
		return nil,
			fmt.Errorf("%s, which names the runs in progress, is %w: %w; restore it, or move it away: then no run is taken up by itself, and the command that began one goes on with it",
				f.Path(runsFile), ErrDamaged, err)
	}
	return entries, nil
}

// Put adds a run, or replaces what is kept of it.
func (j *Journal) Put(e Entry) error {
	next := make([]Entry, 0, len(j.entries)+1)
	replaced := false
	for _, old := range j.entries {
		if old.same(e) {
			return nil
		}
		if old.ID == e.ID {
			old, replaced = e, true
		}
		next = append(next, old)
	}
	if !replaced {
		next = append(next, e)
	}
	return j.write(next)
}

// Remove forgets a run.
func (j *Journal) Remove(id string) error {
	next := make([]Entry, 0, len(j.entries))
	for _, e := range j.entries {
		if e.ID != id {
			next = append(next, e)
		}
	}
	if len(next) == len(j.entries) {
		return nil
	}
	return j.write(next)
}

func (j *Journal) write(entries []Entry) error {
	text, err := encode(entries)
	if err == nil {
		err = folder.Replace(j.dir, runsFile, func(w io.Writer) error {
			_, err := w.Write(text)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("noting the runs in progress: %w", err)
	}
	j.entries = entries
	return nil
}
