package corpus

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// Accept accepts or rejects the content of the files of a key. It is called before a text is
// encoded: a changed text may have characters that the tokenizer does not know.
type Accept func(key string, is data.Identity) error

// Comparison compares the data with those that a run used so far.
type Comparison struct {
	Was    trainstate.Data
	Out    string // the run's folder
	Accept bool   // the user accepts new data
	// EvalSet is the [[eval]] that decided which checkpoint was the best; "": data.val or a part of data.train.
	EvalSet string

	Validation bool // the validation data has changed
	changes    []string
}

// Check compares the files of a key with those that the run used so far.
func (n *Comparison) Check(key string, is data.Identity) error {
	was := &n.Was.Train
	set, isSet := strings.CutPrefix(key, identityKey(""))
	if key == "data.val" {
		was = n.Was.Val
	}
	if isSet {
		if was = nil; n.Was.Evals != nil {
			if id, ok := n.Was.Evals[set]; ok {
				was = &id
			}
		}
	}
	if source, ok := strings.CutPrefix(key, identityOfSource("")); ok {
		if was = nil; n.Was.Sources != nil {
			if id, ok := n.Was.Sources[source]; ok {
				was = &id
			}
		}
	}
	if was == nil {
		return nil
	}
	d := was.Difference(is)
	switch {
	case d == "":
		return nil
	case !n.Accept:
		return fmt.Errorf("%w %s: the content of the files has changed since the run started (%s); restore it, continue with the new data (--accept-new-data), or choose another run.out", rundir.ErrFolder, n.Out, d)
	}
	n.changes = append(n.changes, key+": "+d)
	switch {
	case isSet:
		n.Validation = n.Validation || set == n.EvalSet
	case key == "data.val" || n.Was.Val == nil && n.EvalSet == "": // validation uses a part of the training files
		n.Validation = true
	}
	return nil
}

// Decision returns the user's decision to accept new data; nil: the data has not changed.
func (n *Comparison) Decision(step int64) *trainstate.Decision {
	if len(n.changes) == 0 {
		return nil
	}
	return &trainstate.Decision{Step: step, Time: clock.Now().UTC(), Kind: trainstate.NewData, Detail: strings.Join(n.changes, "; ")}
}

// unreadable marks an error of the system, which may be temporary: see
// checkpoint.TryAgain.
func unreadable(err error) error {
	var system syscall.Errno
	if errors.As(err, &system) || errors.Is(err, io.ErrUnexpectedEOF) {
		return folder.Unreadable(err)
	}
	return err
}
