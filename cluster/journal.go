package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/folder"
	"github.com/troupe-ml/troupe/internal/strictjson"
)

// Files in a coordinator's folder.
const (
	journalFile = "runs.json"
	addressFile = "address" // where the coordinator is reached, while there is one
	lockFile    = "coordinator.lock"
)

// journalVersion is the version of runs.json that this package writes. It reads version 1 too,
// in which all runs have begun.
const journalVersion = 2

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
	Paused        bool   `json:"paused"`
	Stopping      bool   `json:"stopping"` // somebody has asked it to end

	// As it was asked for, which counts until it has begun.
	Fresh    bool     `json:"fresh"`
	FromStep int      `json:"from_step"`
	State    progress `json:"state"`
}

// options are those by which the run begins or goes on.
func (e entry) options() troupe.Options {
	o := troupe.Options{AcceptNewData: e.AcceptNewData}
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
		if old == e {
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
	if entries == nil {
		entries = []entry{}
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
	for i := range entries {
		e := &entries[i]
		if err == nil && (version == 1) != (e.State == "") {
			err = fmt.Errorf("run %d: its state is %q in a file of version %d", i+1, e.State, version)
		}
		if version == 1 {
			e.State = begun
		}
	}
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// decodeEntry reads a run. One of version 1 has no state.
func decodeEntry(dec *json.Decoder) (e entry, err error) {
	var state string
	later := map[string]bool{"fresh": true, "from_step": true, "state": true} // than version 1
	added := 0
	texts := map[string]*string{"id": &e.ID, "name": &e.Name, "by": &e.By, "folder": &e.Folder, "config": &e.Config, "submitted": &e.Submitted, "state": &state}
	flags := map[string]*bool{"accept_new_data": &e.AcceptNewData, "paused": &e.Paused, "stopping": &e.Stopping, "fresh": &e.Fresh}
	keys := 0
	err = strictjson.Object(dec, func(key string) (err error) {
		keys++
		if later[key] {
			added++
		}
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
		default:
			err = errors.New("not known")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strictjson.Plain(key), err)
		}
		return nil
	})
	e.State = progress(state)
	all := len(texts) + len(flags) + 2
	switch {
	case err != nil:
	case keys != all && (added != 0 || keys != all-len(later)):
		err = fmt.Errorf("%d keys; want %d", keys, all)
	case added != 0 && e.State != submitted && e.State != beginning && e.State != begun:
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
