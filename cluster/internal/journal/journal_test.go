package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/crashfs"
	"github.com/troupe-ml/troupe/telemetry/event"
)

var entries = []Entry{
	{ID: "01ab23cd", Name: "one", By: "operator-x", Folder: "/here", Config: "[run]\nname = \"one\"\n", Workers: 2,
		Submitted: "2026-11-22T10:00:00Z", State: Begun, Restarts: 1, LostSteps: 222,
		Requests: []troupe.Change{{Kind: event.ChangePause}, {Kind: event.ChangeStop, Step: 70},
			{Kind: event.ChangeRate, LR: 1e-3, MinLR: 1e-4}}},
	{ID: "deadbeef", Name: "two \"quoted\"", Folder: "/", Config: "", AcceptNewData: true, Stopping: true, Submitted: "2026-11-22T10:00:01Z",
		Fresh: true, FromStep: 7, State: Submitted},
}

// TestJournal: the next coordinator of the folder reads what was written. Only one at a time may open it.
func TestJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j, err := Open(dir)
	if err != nil || len(j.entries) > 0 {
		t.Fatalf("a new folder: %v, %v", j, err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "another coordinator uses") {
		t.Errorf("a second coordinator: %v", err)
	}
	changed := entries[0]
	changed.Requests = changed.Requests[1:]
	for _, e := range []Entry{entries[0], entries[1], changed, {ID: "00000000", Submitted: entries[0].Submitted, State: Beginning}} {
		if err := j.Put(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"00000000", "12341234"} {
		if err := j.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close() //nolint:errcheck // of a test
	if want := []Entry{changed, entries[1]}; !reflect.DeepEqual(again.entries, want) {
		t.Errorf("got %+v, want %+v", again.entries, want)
	}
}

// TestJournalOfManyRequests: the maximum number of a run's requests can be read again.
func TestJournalOfManyRequests(t *testing.T) {
	e := entries[0]
	e.Requests = []troupe.Change{{Kind: event.ChangeResume}, {Kind: event.ChangePause}, {Kind: event.ChangeCheckpoint},
		{Kind: event.ChangeStop}}
	for step := range int64(troupe.LimitRequests) {
		e.Requests = append(e.Requests, troupe.Change{Kind: event.ChangePause, Step: step + 1})
	}
	text, err := encode([]Entry{e})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(text); err != nil || !reflect.DeepEqual(got, []Entry{e}) {
		t.Errorf("%d requests: %v", len(e.Requests), err)
	}
}

// TestDamagedJournal: a damaged journal is refused.
func TestDamagedJournal(t *testing.T) {
	good, err := encode(entries)
	if err != nil {
		t.Fatal(err)
	}
	text := string(good)
	for name, bad := range map[string]string{
		"cut off":          text[:len(text)/2],
		"empty":            "",
		"more behind it":   text + "{}",
		"another version":  strings.Replace(text, `"version": 3`, `"version": 4`, 1),
		"version 0":        strings.Replace(text, `"version": 3`, `"version": 0`, 1),
		"an old version":   strings.Replace(text, `"version": 3`, `"version": 1`, 1),
		"no version":       strings.Replace(text, `"version": 3,`, "", 1),
		"another state":    strings.Replace(text, `"state": "begun"`, `"state": "ended"`, 1),
		"no state":         strings.Replace(text, ",\n      \"state\": \"begun\"", "", 1),
		"an unknown key":   strings.Replace(text, `"name"`, `"nam"`, 1),
		"a key twice":      strings.Replace(text, `"name": "one"`, `"name": "one", "name": "one"`, 1),
		"a key missing":    strings.Replace(text, `"name": "one",`, "", 1),
		"an id twice":      strings.Replace(text, "deadbeef", "01ab23cd", 1),
		"a bad id":         strings.Replace(text, "deadbeef", "../../x", 1),
		"a wrong type":     strings.Replace(text, `"stopping": true`, `"stopping": "true"`, 1),
		"another request":  strings.Replace(text, `"kind": "pause"`, `"kind": "dance"`, 1),
		"a request's key":  strings.Replace(text, `"kind": "pause",`, `"kind": "pause", "when": 1,`, 1),
		"a bad rate":       strings.Replace(text, `"lr": 0.001`, `"lr": "0.001"`, 1),
		"bad restarts":     strings.Replace(text, `"restarts": 1`, `"restarts": 2147483648`, 1),
		"lost steps twice": strings.Replace(text, `"lost_steps": 222`, `"lost_steps": 222, "lost_steps": 222`, 1),
		"a negative":       strings.Replace(text, `"workers": 2`, `"workers": -2`, 1),
		"no time":          strings.Replace(text, "2026-11-22T10:00:01Z", "yesterday", 1),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, runsFile)
			if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			if j, err := Open(dir); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "restore it, or move it away") {
				t.Errorf("%v, %v", j, err)
			}
			if left, err := os.ReadFile(path); err != nil || string(left) != bad {
				t.Errorf("it was changed: %v", err)
			}
		})
	}
}

// TestOldJournal: in version 1 all runs have begun; up to version 2 pause is the only request.
func TestOldJournal(t *testing.T) {
	const one = `{"version": %s, "runs": [{"id": "01ab23cd", "name": "one", "by": "x", "folder": "/here", "config": "", "accept_new_data": false,
		"workers": 2, "submitted": "2026-11-22T10:00:00Z", "paused": %s, "stopping": false%s}]}`
	later := `, "fresh": false, "from_step": 0, "state": "begun"`
	want := Entry{ID: "01ab23cd", Name: "one", By: "x", Folder: "/here", Workers: 2, Submitted: "2026-11-22T10:00:00Z", State: Begun}
	paused := want
	paused.Requests = []troupe.Change{{Kind: event.ChangePause}}
	for _, tt := range []struct {
		text string
		want Entry
	}{
		{fmt.Sprintf(one, "1", "false", ""), want},
		{fmt.Sprintf(one, "2", "true", later), paused},
	} {
		got, err := decode([]byte(tt.text))
		if err != nil || !reflect.DeepEqual(got, []Entry{tt.want}) {
			t.Errorf("got %+v, %v, want %+v", got, err, tt.want)
		}
	}
}

// TestJournalCrash: if the process or the power fails at any operation while a run is written, the file is the old or the new
// one, and the new one once the call has returned.
func TestJournalCrash(t *testing.T) {
	before, added := entries[:1], entries[1]
	for k, done := 0, false; !done; k++ {
		dir := t.TempDir()
		text, err := encode(before)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, runsFile), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		fsys, err := crashfs.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		fsys.CrashAt(k)
		perr := (&Journal{dir: fsys, entries: before}).Put(added)
		done = perr == nil && fsys.Ops() <= k
		left := t.TempDir()
		if err := errors.Join(fsys.Crash(left, uint64(k)), fsys.Close()); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{dir, left} {
			j, err := Open(dir)
			if err != nil {
				t.Fatalf("a crash at operation %d: %v", k, err)
			}
			switch got := j.entries; {
			case reflect.DeepEqual(got, entries):
			case perr == nil || !reflect.DeepEqual(got, before):
				t.Errorf("a crash at operation %d (%v) leaves %+v", k, perr, got)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// FuzzJournal: what is read is written the same again.
func FuzzJournal(f *testing.F) {
	good, err := encode(entries)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"runs":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := decode(text)
		if err != nil {
			return
		}
		text, err = encode(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(text)
		if err != nil || len(got)+len(again) > 0 && !reflect.DeepEqual(got, again) {
			t.Errorf("%+v is read again as %+v, %v", got, again, err)
		}
	})
}

// TestFirstAttempt: each coordinator of a folder numbers its attempts above those of all earlier ones, whatever the clock
// says. It also starts if the number can't be read or stored.
func TestFirstAttempt(t *testing.T) {
	dir := t.TempDir()
	first := func() (uint64, error) {
		j, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close() //nolint:errcheck // of a test
		return j.FirstAttempt()
	}
	var last uint64
	for range 3 {
		n, err := first()
		if err != nil || n < last+attemptsOfStart {
			t.Errorf("after %d it begins at %d: %v", last, n, err)
		}
		last = n
	}
	if err := os.WriteFile(filepath.Join(dir, startsFile), []byte("many"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := first(); err == nil || !strings.Contains(err.Error(), startsFile) {
		t.Errorf("a file of no number: %v", err)
	}
}
