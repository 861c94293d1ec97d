// Package journal keeps a coordinator's runs in files of its folder, for the next coordinator that
// starts there. For each run in progress it stores the submission and the pending requests, and for the
// last runs that have ended how they ended. It must never know workers or connections.
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
	addressFile = "address" // the coordinator's address, while it runs
	lockFile    = "coordinator.lock"
	startsFile  = "starts" // how many times a coordinator has started with the folder
	checkFile   = ".check" // written and removed to check the folder
)

// RunIDBytes is the length of a run's id in bytes; its text has twice as many hexadecimal digits.
const RunIDBytes = 4

// IsRunID reports whether a text is a run's id.
func IsRunID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == RunIDBytes && strings.ToLower(id) == id
}

// Limits of the folder's files.
const (
	// LimitRuns is how many runs may be in progress.
	LimitRuns = 256
	// limitRequests is how many requests of a run are kept: troupe.LimitRequests, and one of each kind without a step.
	limitRequests = troupe.LimitRequests + 8
	// limitBytes bounds runs.json, and limitLineBytes the files with one line.
	limitBytes     = 64 << 20
	limitLineBytes = 512
)

// State is how far a run has come. It is written before the step that it allows is taken, so that a
// coordinator that fails in between loses no run.
type State string

const (
	// Submitted: the run's folder is untouched. The run begins as it was submitted.
	Submitted State = "submitted"
	// Queued: like Submitted, but the run waits in the queue.
	Queued State = "queued"
	// Beginning: the run's folder was checked and may have been written to. It need not be empty any
	// more.
	Beginning State = "beginning"
	// Begun: the run resumes from its newest checkpoint.
	Begun State = "begun"
)

// ErrDamaged: runs.json, the file of the runs in progress, can't be parsed.
var ErrDamaged = errors.New("damaged")

// Entry is a run in progress, as runs.json stores it.
type Entry struct {
	ID            string `json:"id"`
	Name          string `json:"name"`
	By            string `json:"by"`
	Folder        string `json:"folder"` // the base of relative paths
	Config        string `json:"config"` // resolved, as TOML
	AcceptNewData bool   `json:"accept_new_data"`
	Workers       int    `json:"workers"`   // number of workers that it had
	Submitted     string `json:"submitted"` // time in RFC 3339
	Stopping      bool   `json:"stopping"`  // a client has requested a stop
	// Requests are its pending requests: see troupe.Run.Requests.
	Requests []troupe.Change `json:"requests"`
	// Restarts and LostSteps count its restarts after failures and the steps that it repeated. Journals of older builds
	// lack them. Zeros are left out, so that older builds can read the journal.
	Restarts  int32 `json:"restarts,omitempty"`
	LostSteps int64 `json:"lost_steps,omitempty"`

	// Options of the submission, which count until the run has begun.
	Fresh    bool  `json:"fresh"`
	FromStep int   `json:"from_step"`
	State    State `json:"state"`

	version uint64 // of the file that it is read from; 0 afterwards
}

// Untouched reports whether nothing of the run has begun: its folder is as it was when the run was submitted.
func (e *Entry) Untouched() bool { return e.State == Submitted || e.State == Queued }

// same reports whether two entries are equal.
func (e Entry) same(o Entry) bool {
	requests := slices.Equal(e.Requests, o.Requests)
	e.Requests, o.Requests = nil, nil
	return requests && reflect.DeepEqual(e, o)
}

// Journal is the list of runs in progress, on disk. Its methods must not be called concurrently.
type Journal struct {
	dir     folder.FS
	lock    *os.File
	entries []Entry
	ended   []Ended
	damaged error
}

// Open locks a coordinator's folder for this process, and reads the runs that were in progress when
// the last coordinator ended.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the coordinator's folder: %w", err)
	}
	f, err := folder.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the coordinator's folder: %w", err)
	}
	j := &Journal{dir: f}
	var held bool
	if j.lock, held, err = f.Lock(lockFile); err == nil && !held {
		err = fmt.Errorf("another coordinator uses %s; stop it, or give this one another folder (--dir)", dir)
	}
	if err == nil {
		j.entries, err = read(f)
	}
	if err == nil {
		err = j.readEnded()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the coordinator's folder: %w", err), j.Close())
	}
	return j, nil
}

// Entries returns the runs in progress. The caller must not change them.
func (j *Journal) Entries() []Entry { return j.entries }

// Through makes the journal use another file system, and returns the previous one: tests simulate full
// disks.
func (j *Journal) Through(dir folder.FS) (before folder.FS) {
	before, j.dir = j.dir, dir
	return before
}

// Close unlocks the folder.
func (j *Journal) Close() error {
	err := j.dir.Close()
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	return err
}

// Announce writes the coordinator's address to the folder; "" removes it.
func (j *Journal) Announce(address string) error {
	if address == "" {
		return j.dir.RemoveAll(addressFile)
	}
	return j.replace(addressFile, []byte(address+"\n"))
}

// replace replaces a file of the folder.
func (j *Journal) replace(name string, text []byte) error {
	return folder.Replace(j.dir, name, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// Check checks that the folder is still this coordinator's and can be written to. It writes and removes a small file. It
// may run while another method runs, but not twice at a time.
func (j *Journal) Check() error {
	own, err := j.lock.Stat()
	var there fs.FileInfo
	if err == nil {
		there, err = os.Stat(j.dir.Path(lockFile))
	}
	switch {
	case err != nil:
		return fmt.Errorf("the lock of the coordinator's folder: %w", err)
	case !os.SameFile(own, there):
		return fmt.Errorf("%s was replaced: another coordinator may use the folder; stop one of them", j.dir.Path(lockFile))
	}
	if err = errors.Join(j.replace(checkFile, []byte("ok\n")), j.dir.RemoveAll(checkFile)); err != nil {
		return fmt.Errorf("write to the coordinator's folder: %w", err)
	}
	return nil
}

// attemptsOfStart is how many numbers of attempts each start of a coordinator has.
const attemptsOfStart = 1 << 32

// FirstAttempt returns a number such that this coordinator's attempts, numbered from the next one on,
// have higher numbers than those of all earlier coordinators of the folder. No clock is involved. It
// counts this start in the folder.
func (j *Journal) FirstAttempt() (uint64, error) {
	text, err := folder.ReadFile(j.dir, startsFile, limitLineBytes)
	starts := uint64(0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		if starts, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31); err != nil {
			err = fmt.Errorf("read the number of starts in %s: %w; remove the file, or write a number below %d to it", j.dir.Path(startsFile), err,
				1<<31)
		}
	}
	if err == nil {
		err = j.replace(startsFile, fmt.Appendln(nil, starts+1))
	}
	return (starts + 1) * attemptsOfStart, err
}

// AddressIn reads the address of the coordinator that runs on this host with a folder.
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
			fmt.Errorf("%s, the list of runs in progress, is %w: %w; restore it, or move it away and resume each run with the command that started it",
				f.Path(runsFile), ErrDamaged, err)
	}
	return entries, nil
}

// Put adds a run, or replaces its entry.
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

// Remove removes a run.
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
		err = j.replace(runsFile, text)
	}
	if err != nil {
		return fmt.Errorf("write the list of runs in progress: %w", err)
	}
	j.entries = entries
	return nil
}
