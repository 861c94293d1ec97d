package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/wire"
)

// endedFile has the last runs that have ended. It is only for lists: without it no run is lost.
const endedFile = "ended.json"

// endedVersion is the version of ended.json that this package reads and writes.
const endedVersion = 1

// LimitEnded is how many of the last ended runs are kept.
const LimitEnded = 64

// Ended is a run that has ended, as clients see it.
type Ended struct {
	UUID     string // in the run's own files
	LogEvery int    // run.log_every of its config
	// Info describes the run to followers; nil: it had not begun.
	Info    *wire.RunInfo
	Summary *wire.RunSummary
	End     *wire.EndEvent
}

// endedJSON is ended.json. Summary and End are in protobuf's JSON.
type endedJSON struct {
	Version int            `json:"version"`
	Runs    []endedRunJSON `json:"runs"`
}

type endedRunJSON struct {
	UUID     string          `json:"uuid"`
	LogEvery int             `json:"log_every"`
	Info     json.RawMessage `json:"info,omitempty"`
	Summary  json.RawMessage `json:"summary"`
	End      json.RawMessage `json:"end"`
}

// Ended returns the last ended runs, in the order in which they ended. The caller must not change them.
func (j *Journal) Ended() []Ended { return j.ended }

// AddEnded adds a run that has ended, and drops the oldest ones beyond LimitEnded.
func (j *Journal) AddEnded(e Ended) error {
	next := slices.DeleteFunc(slices.Clone(j.ended), func(o Ended) bool { return o.Summary.GetId() == e.Summary.GetId() })
	next = append(next, e)
	next = next[max(0, len(next)-LimitEnded):]
	text, err := encodeEnded(next)
	if err == nil {
		err = j.replace(endedFile, text)
	}
	if err != nil {
		return fmt.Errorf("write the list of ended runs: %w", err)
	}
	j.ended = next
	return nil
}

// readEnded reads the ended runs. A damaged file does not stop the coordinator: it is renamed, and Damaged says so.
func (j *Journal) readEnded() error {
	text, err := folder.ReadFile(j.dir, endedFile, limitBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if j.ended, err = decodeEnded(text); err == nil {
		return nil
	}
	to, aerr := folder.AsideName(j.dir, endedFile, "damaged")
	if aerr == nil {
		aerr = j.dir.Rename(endedFile, to)
	}
	if aerr != nil {
		return aerr
	}
	j.damaged = fmt.Errorf("%s, the list of ended runs, is %w: %w; it was renamed to %s, and the list begins empty", j.dir.Path(endedFile),
		ErrDamaged, err, to)
	return nil
}

// Damaged says which file of the folder was damaged and renamed at the start; nil: none was.
func (j *Journal) Damaged() error { return j.damaged }

func encodeEnded(all []Ended) ([]byte, error) {
	file := endedJSON{Version: endedVersion, Runs: []endedRunJSON{}}
	for _, e := range all {
		one := endedRunJSON{UUID: e.UUID, LogEvery: e.LogEvery}
		var err, endErr, infoErr error
		if e.Info != nil {
			one.Info, infoErr = protojson.Marshal(e.Info)
		}
		one.Summary, err = protojson.Marshal(e.Summary)
		one.End, endErr = protojson.Marshal(e.End)
		if err = errors.Join(err, endErr, infoErr); err != nil {
			return nil, err
		}
		file.Runs = append(file.Runs, one)
	}
	text, err := json.MarshalIndent(file, "", "  ") // it also removes protojson's random spaces
	if err == nil && len(text) >= limitBytes {
		err = fmt.Errorf("they take %d bytes; the limit is %d", len(text), limitBytes)
	}
	return append(text, '\n'), err
}

func decodeEnded(text []byte) (all []Ended, err error) {
	var file endedJSON
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text follows the list")
	}
	if file.Version != endedVersion {
		return nil, fmt.Errorf("the version is %d; want %d", file.Version, endedVersion)
	}
	if len(file.Runs) > LimitEnded {
		return nil, fmt.Errorf("%d runs; the limit is %d", len(file.Runs), LimitEnded)
	}
	for i, one := range file.Runs {
		e := Ended{UUID: one.UUID, LogEvery: one.LogEvery, Summary: &wire.RunSummary{}, End: &wire.EndEvent{}}
		err := errors.Join(protojson.Unmarshal(one.Summary, e.Summary), protojson.Unmarshal(one.End, e.End))
		if err == nil && one.Info != nil {
			e.Info = &wire.RunInfo{}
			err = protojson.Unmarshal(one.Info, e.Info)
		}
		if err == nil {
			err = e.check()
		}
		if err == nil && slices.ContainsFunc(all, func(o Ended) bool { return o.Summary.GetId() == e.Summary.GetId() }) {
			err = errors.New("its id appears twice")
		}
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", i+1, err)
		}
		all = append(all, e)
	}
	return all, nil
}

func (e Ended) check() error {
	s := e.Summary
	switch {
	case !IsRunID(s.GetId()):
		return fmt.Errorf("the id %.50q; want %d hexadecimal digits", s.GetId(), 2*RunIDBytes)
	case s.GetState() != wire.RunSummary_DONE && s.GetState() != wire.RunSummary_STOPPED && s.GetState() != wire.RunSummary_FAILED:
		return fmt.Errorf("the state %v; want DONE, STOPPED or FAILED", s.GetState())
	case s.GetEndedNs() <= 0 || s.GetSubmittedNs() <= 0:
		return errors.New("its times are missing")
	}
	return nil
}
