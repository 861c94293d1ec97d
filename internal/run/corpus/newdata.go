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

// Accept accepts files, which a key names, by their content. It is asked before a text is
// encoded: one that was changed may have characters that the tokenizer doesn't know.
type Accept func(key string, is data.Identity) error

// Comparison compares the data with what a run was trained and validated on so far.
type Comparison struct {
	Was    trainstate.Data
	Out    string // the run's
	Accept bool   // by a person's word

	Validation bool // it is on other data now
	changes    []string
}

// Check compares the files that a key names with what they were.
func (n *Comparison) Check(key string, is data.Identity) error {
	was := &n.Was.Train
	if key == "data.val" {
		was = n.Was.Val
	}
	if was == nil {
		return nil
	}
	d := was.Difference(is)
	switch {
	case d == "":
		return nil
	case !n.Accept:
		return fmt.Errorf("%w %s: the content of the files is not what the run was begun with (%s); restore it, go on with the new data by --accept-new-data, or choose another run.Out", rundir.ErrFolder, n.Out, d)
	}
	n.changes = append(n.changes, key+": "+d)
	n.Validation = n.Validation || key == "data.val" || n.Was.Val == nil // which is a part of the training files
	return nil
}

// Decision is the person's word; nil: there was no need for it.
func (n *Comparison) Decision(step int64) *trainstate.Decision {
	if len(n.changes) == 0 {
		return nil
	}
	return &trainstate.Decision{Step: step, Time: clock.Now().UTC(), Kind: trainstate.NewData, Detail: strings.Join(n.changes, "; ")}
}

// unreadable marks an error of the system's, which may pass by itself: see
// checkpoint.TryAgain.
func unreadable(err error) error {
	var system syscall.Errno
	if errors.As(err, &system) || errors.Is(err, io.ErrUnexpectedEOF) {
		return folder.Unreadable(err)
	}
	return err
}
