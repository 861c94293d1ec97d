package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// newest is the version of runs.json that this package writes. It also reads version 1, in which all
// runs have begun, and version 2, whose only request is a pause.
const newest = 3

func encode(entries []Entry) ([]byte, error) {
	entries = append([]Entry{}, entries...) // an empty list instead of null
	for i := range entries {
		entries[i].Requests = append([]troupe.Change{}, entries[i].Requests...)
	}
	text, err := json.MarshalIndent(struct {
		Version int     `json:"version"`
		Runs    []Entry `json:"runs"`
	}{newest, entries}, "", "  ")
	if err != nil {
		return nil, err
	}
	if len(text) >= limitBytes {
		return nil, fmt.Errorf("they take %d bytes; the limit is %d", len(text), limitBytes)
	}
	return append(text, '\n'), nil
}

// decode parses runs.json. Every key must appear exactly once, restarts and lost_steps at most once, and no other key may
// appear.
func decode(text []byte) (entries []Entry, err error) {
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
			if version = uint64(n); err == nil && (version < 1 || version > newest) {
				err = fmt.Errorf("the version is %d; want 1 to %d", version, newest)
			}
			return err
		case "runs":
			return strictjson.Array(dec, func() error {
				if len(entries) == LimitRuns {
					return fmt.Errorf("more than %d runs", LimitRuns)
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
		return fmt.Errorf("unknown key %s", strictjson.Quote(key))
	})
	if err == nil && keys != 2 {
		err = errors.New("version or runs is missing")
	}
	if err == nil {
		err = strictjson.End(dec)
	}
	for i, e := range entries {
		if err == nil && e.version != version {
			err = fmt.Errorf("run %d: it has the keys of version %d, but the file is version %d", i+1, e.version, version)
		}
		entries[i].version = 0
	}
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// entryKeys are the keys of a run in each version of the file, starting with version 1.
var entryKeys = func() [newest]map[string]bool {
	of := func(keys ...string) map[string]bool {
		set := make(map[string]bool)
		for _, k := range keys {
			set[k] = true
		}
		return set
	}
	return [newest]map[string]bool{
		of("id", "name", "by", "folder", "config", "accept_new_data", "workers", "submitted", "paused", "stopping"),
		of("id", "name", "by", "folder", "config", "accept_new_data", "workers", "submitted", "paused", "stopping", "fresh", "from_step",
			"state"),
		of("id", "name", "by", "folder", "config", "accept_new_data", "workers", "submitted", "requests", "stopping", "fresh", "from_step",
			"state"),
	}
}()

// decodeEntry parses a run. Its keys determine its version.
func decodeEntry(dec *json.Decoder) (e Entry, err error) {
	var state string
	var paused bool
	seen := make(map[string]bool)
	texts := map[string]*string{"id": &e.ID, "name": &e.Name, "by": &e.By, "folder": &e.Folder, "config": &e.Config, "submitted": &e.Submitted,
		"state": &state}
	flags := map[string]*bool{"accept_new_data": &e.AcceptNewData, "paused": &paused, "stopping": &e.Stopping, "fresh": &e.Fresh}
	err = strictjson.Object(dec, func(key string) (err error) {
		seen[key] = key != "restarts" && key != "lost_steps" // every version may have these, or not
		switch {
		case !seen[key]:
			delete(seen, key)
			if key == "lost_steps" {
				e.LostSteps, err = strictjson.Uint(dec, 63)
				break
			}
			var n int64
			n, err = strictjson.Uint(dec, 31)
			e.Restarts = int32(n)
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
			err = errors.New("unknown key")
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
			e.version = uint64(i + 1)
		}
	}
	if e.State = State(state); e.version == 1 {
		e.State = Begun
	}
	if paused {
		e.Requests = []troupe.Change{{Kind: event.ChangePause}}
	}
	switch {
	case e.version == 0:
		err = fmt.Errorf("a key is missing: its %d keys match no version of the file", len(seen))
	case e.State != Submitted && e.State != Queued && e.State != Beginning && e.State != Begun:
		err = fmt.Errorf("the state %s; want %s, %s, %s or %s", strictjson.Quote(state), Submitted, Queued, Beginning, Begun)
	case !IsRunID(e.ID):
		err = fmt.Errorf("the id %s; want %d hexadecimal digits", strictjson.Quote(e.ID), 2*RunIDBytes)
	default:
		if _, perr := time.Parse(time.RFC3339, e.Submitted); perr != nil {
			err = fmt.Errorf("submitted: %s is not a time", strictjson.Quote(e.Submitted))
		}
	}
	return e, err
}

// decodeRequests parses the pending requests of a run.
func decodeRequests(dec *json.Decoder) (all []troupe.Change, err error) {
	err = strictjson.Array(dec, func() error {
		if len(all) == limitRequests {
			return fmt.Errorf("more than %d", limitRequests)
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
				err = errors.New("unknown key")
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
