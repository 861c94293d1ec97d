package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Files in a coordinator's folder.
const (
	journalFile = "runs.json"
	addressFile = "address" // where the coordinator is reached, while there is one
	lockFile    = "coordinator.lock"
	startsFile  = "starts" // how many coordinators were started on the folder
)

// journalVersion is the version of runs.json that this package writes. It reads version 1 too,
// in which all runs have begun, and version 2, which knows of no request but a pause.
const journalVersion = 3

// progress says how far a run had come when it was last noted. It is noted before that is done
// which it allows, so that a coordinator that dies in between loses no run.
type progress string

const (
	// submitted: nothing was done yet. The run is taken up as it was asked for.
	submitted progress = "submitted"
	// beginning: its folder was looked at, and may have been written to since. That it had to be
	// empty is not asked again.
	beginning progress = "beginning"
	// begun: it goes on from its newest checkpoint.
	begun progress = "begun"
)

// ErrJournal: the file of the runs in progress can't be used as it stands.
var ErrJournal = errors.New("damaged")

// entry is a run in progress, as it is kept over the coordinator's death.
type entry struct {
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
	Fresh    bool     `json:"fresh"`
	FromStep int      `json:"from_step"`
	State    progress `json:"state"`

	version uint64 // of the file that it was read from, while that is read
}

// same reports whether nothing of an entry has changed.
func (e entry) same(o entry) bool {
	requests := slices.Equal(e.Requests, o.Requests)
	e.Requests, o.Requests = nil, nil
	return requests && reflect.DeepEqual(e, o)
}

// options are those by which the run begins or goes on.
func (e entry) options() troupe.Options {
	o := troupe.Options{AcceptNewData: e.AcceptNewData, Requests: e.Requests}
	if e.State != begun { // given again, a step that was obeyed changes nothing
		o.FromStep = e.FromStep
	}
	o.Fresh = e.Fresh && e.State == submitted
	return o
}

// journal is the runs in progress, on the disk. Its methods are called one after the other.
type journal struct {
	dir     folder.FS
	lock    *os.File
	entries []entry
}

// openJournal takes the folder of a coordinator for this process, and reads the runs that
// were in progress when the last one ended.
func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the coordinator's folder: %w", err)
	}
	f, err := folder.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("the coordinator's folder: %w", err)
	}
	j := &journal{dir: f}
	var held bool
	if j.lock, held, err = f.Lock(lockFile); err == nil && !held {
		err = fmt.Errorf("another coordinator uses %s: end it, or give this one a folder of its own", dir)
	}
	if err == nil {
		j.entries, err = readJournal(f)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the coordinator's folder: %w", err), j.close())
	}
	return j, nil
}

func (j *journal) close() error {
	err := j.dir.Close()
	if j.lock != nil {
		err = errors.Join(err, j.lock.Close())
	}
	return err
}

// announce writes where the coordinator is reached; "": nowhere any more.
func (j *journal) announce(address string) error {
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

// firstAttempt is the number below those of this coordinator's attempts, which are above those of all
// coordinators of the folder before it, whatever the clock says.
func (j *journal) firstAttempt() (uint64, error) {
	text, err := folder.ReadFile(j.dir, startsFile, limitNameBytes)
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
	text, err := folder.ReadFile(f, addressFile, limitNameBytes+limitNameBytes)
	return strings.TrimSpace(string(text)), err
}

func readJournal(f folder.FS) ([]entry, error) {
	text, err := folder.ReadFile(f, journalFile, limitJournalBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := decodeJournal(text)
	if err != nil {
		return nil, fmt.Errorf("%s, which names the runs in progress, is %w: %w; restore it, or move it away: then no run is taken up by itself, and the command that began one goes on with it",
			f.Path(journalFile), ErrJournal, err)
	}
	return entries, nil
}

// put adds a run, or replaces what is kept of it.
func (j *journal) put(e entry) error {
	next := make([]entry, 0, len(j.entries)+1)
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

// remove forgets a run.
func (j *journal) remove(id string) error {
	next := make([]entry, 0, len(j.entries))
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

func (j *journal) write(entries []entry) error {
	text, err := encodeJournal(entries)
	if err == nil {
		err = folder.Replace(j.dir, journalFile, func(w io.Writer) error {
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

func encodeJournal(entries []entry) ([]byte, error) {
	entries = append([]entry{}, entries...) // an empty list, and no null
	for i := range entries {
		entries[i].Requests = append([]troupe.Change{}, entries[i].Requests...)
	}
	text, err := json.MarshalIndent(struct {
		Version int     `json:"version"`
		Runs    []entry `json:"runs"`
	}{journalVersion, entries}, "", "  ")
	if err != nil {
		return nil, err
	}
	if len(text) >= limitJournalBytes {
		return nil, fmt.Errorf("they take %d bytes, the limit is %d", len(text), limitJournalBytes)
	}
	return append(text, '\n'), nil
}

// decodeJournal reads runs.json. Every key must be there, once, and no other.
func decodeJournal(text []byte) (entries []entry, err error) {
	dec, err := strictjson.NewDecoder(text)
	if err != nil {
		return nil, err
	}
	ids := make(map[string]bool)
	keys, version := 0, uint64(0)
	err = strictjson.Object(dec, func(key string) error {
		keys++
		switch key {
		case "version":
			n, err := strictjson.Uint(dec, 32)
			if version = uint64(n); err == nil && (version < 1 || version > journalVersion) { //nolint:gosec // at least 0
				err = fmt.Errorf("the version is %d; want 1 to %d", version, journalVersion)
			}
			return err
		case "runs":
			return strictjson.Array(dec, func() error {
				if len(entries) == limitRuns {
					return fmt.Errorf("more than %d runs", limitRuns)
				}
				e, err := decodeEntry(dec)
				if err == nil && ids[e.ID] {
					err = errors.New("its id appears twice")
				}
				if err != nil {
					return fmt.Errorf("run %d: %w", len(entries)+1, err)
				}
				ids[e.ID] = true
				entries = append(entries, e)
				return nil
			})
		}
		return fmt.Errorf("the key %s is not known", strictjson.Quote(key))
	})
	if err == nil && keys != 2 {
		err = errors.New("version or runs is missing")
	}
	if err == nil {
		err = strictjson.End(dec)
	}
	for i, e := range entries {
		if err == nil && e.version != version {
			err = fmt.Errorf("run %d: its keys are those of version %d in a file of version %d", i+1, e.version, version)
		}
		entries[i].version = 0
	}
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// entryKeys are the keys of a run in each version of the file, from version 1 on.
var entryKeys = func() [journalVersion]map[string]bool {
	of := func(keys ...string) map[string]bool {
		set := make(map[string]bool)
		for _, k := range keys {
			set[k] = true
		}
		return set
	}
	return [journalVersion]map[string]bool{
		of("id", "name", "by", "folder", "config", "accept_new_data", "workers", "submitted", "paused", "stopping"),
		of("id", "name", "by", "folder", "config", "accept_new_data", "workers", "submitted", "paused", "stopping", "fresh", "from_step", "state"),
		of("id", "name", "by", "folder", "config", "accept_new_data", "workers", "submitted", "requests", "stopping", "fresh", "from_step", "state"),
	}
}()

// decodeEntry reads a run. Its keys say of which version it is.
func decodeEntry(dec *json.Decoder) (e entry, err error) {
	var state string
	var paused bool
	seen := make(map[string]bool)
	texts := map[string]*string{"id": &e.ID, "name": &e.Name, "by": &e.By, "folder": &e.Folder, "config": &e.Config, "submitted": &e.Submitted, "state": &state}
	flags := map[string]*bool{"accept_new_data": &e.AcceptNewData, "paused": &paused, "stopping": &e.Stopping, "fresh": &e.Fresh}
	err = strictjson.Object(dec, func(key string) (err error) {
		seen[key] = true
		switch {
		case texts[key] != nil:
			*texts[key], err = strictjson.String(dec)
		case flags[key] != nil:
			var token json.Token
			if token, err = dec.Token(); err == nil {
				is, ok := token.(bool)
				if *flags[key] = is; !ok {
					err = errors.New("want true or false")
				}
			}
		case key == "workers", key == "from_step":
			var n int64
			n, err = strictjson.Uint(dec, 31)
			if key == "workers" {
				e.Workers = int(n)
			} else {
				e.FromStep = int(n)
			}
		case key == "requests":
			e.Requests, err = decodeRequests(dec)
		default:
			err = errors.New("not known")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strictjson.Plain(key), err)
		}
		return nil
	})
	if err != nil {
		return e, err
	}
	for i, keys := range entryKeys {
		if maps.Equal(seen, keys) {
			e.version = uint64(i + 1) //nolint:gosec // a version
		}
	}
	if e.State = progress(state); e.version == 1 {
		e.State = begun
	}
	if paused {
		e.Requests = []troupe.Change{{Kind: event.ChangePause}}
	}
	switch {
	case e.version == 0:
		err = fmt.Errorf("%d keys, which are those of no version of the file: one is missing", len(seen))
	case e.State != submitted && e.State != beginning && e.State != begun:
		err = fmt.Errorf("the state %s; want %s, %s or %s", strictjson.Quote(state), submitted, beginning, begun)
	case !isRunID(e.ID):
		err = fmt.Errorf("the id %s; want %d hexadecimal digits", strictjson.Quote(e.ID), 2*runIDBytes)
	default:
		if _, perr := time.Parse(time.RFC3339, e.Submitted); perr != nil {
			err = fmt.Errorf("submitted: %s is not a time", strictjson.Quote(e.Submitted))
		}
	}
	return e, err
}

// decodeRequests reads what was asked of a run.
func decodeRequests(dec *json.Decoder) (all []troupe.Change, err error) {
	err = strictjson.Array(dec, func() error {
		if len(all) == limitKeptRequests {
			return fmt.Errorf("more than %d", limitKeptRequests)
		}
		var c troupe.Change
		err := strictjson.Object(dec, func(key string) (err error) {
			switch key {
			case "kind":
				var kind string
				kind, err = strictjson.String(dec)
				c.Kind = troupe.ChangeKind(kind)
			case "step":
				c.Step, err = strictjson.Uint(dec, 63)
			case "lr":
				c.LR, err = strictjson.Float(dec)
			case "min_lr":
				c.MinLR, err = strictjson.Float(dec)
			default:
				err = errors.New("not known")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", strictjson.Plain(key), err)
			}
			return nil
		})
		if err == nil {
			err = c.Check()
		}
		if err == nil {
			all = append(all, c)
		}
		return err
	})
	return all, err
}
