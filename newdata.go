package troupe

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
)

// acceptFunc accepts files, which a key names, by their content. It is asked before a text is
// encoded: one that was changed may have characters that the tokenizer doesn't know.
type acceptFunc func(key string, is data.Identity) error

// newData compares the data with what a run was trained and validated on so far.
type newData struct {
	was    trainstate.Data
	out    string // the run's
	accept bool   // by a person's word

	changes    []string
	validation bool // it is on other data now
}

func (n *newData) compare(key string, is data.Identity) error {
	was := &n.was.Train
	if key == "data.val" {
		was = n.was.Val
	}
	if was == nil {
		return nil
	}
	d := was.Difference(is)
	switch {
	case d == "":
		return nil
	case !n.accept:
		return fmt.Errorf("%w %s: the content of the files is not what the run was begun with (%s); restore it, go on with the new data by --accept-new-data, or choose another run.out", ErrOutput, n.out, d)
	}
	n.changes = append(n.changes, key+": "+d)
	n.validation = n.validation || key == "data.val" || n.was.Val == nil // which is a part of the training files
	return nil
}

// decision is the person's word; nil: there was no need for it.
func (n *newData) decision(step int64) *trainstate.Decision {
	if len(n.changes) == 0 {
		return nil
	}
	return &trainstate.Decision{Step: step, Time: clock.Now().UTC(), Kind: trainstate.NewData, Detail: strings.Join(n.changes, "; ")}
}

// unreadableData marks an error of the system's, which may pass by itself: see
// checkpoint.TryAgain.
func unreadableData(err error) error {
	var system syscall.Errno
	if errors.As(err, &system) || errors.Is(err, io.ErrUnexpectedEOF) {
		return folder.Unreadable(err)
	}
	return err
}
