package actors

import (
	"errors"
	"fmt"
	"testing"

	"github.com/troupe-ml/troupe/stages"
)

// TestAdoptionTable walks the whole table of what a kept stage does, by the state in which it has ended and the decided step.
func TestAdoptionTable(t *testing.T) {
	errList := errors.New("list")
	for _, c := range []struct {
		update updateState
		ahead  int64 // of the target
		kept   bool
		skip   bool
		broken bool
		want   string
	}{
		{updateSettled, 0, false, false, false, "reset"},
		{updatePending, 0, false, false, false, "reset"},
		{updateSpeculative, 0, false, false, false, "undo"},
		{updatePending, 1, false, false, false, "apply"},
		{updatePending, 1, true, false, false, "apply"}, // as predicted, but this stage had not speculated
		{updatePending, 1, false, true, false, "reset"},
		{updateSpeculative, 1, true, false, false, "commit"},
		{updateSpeculative, 1, false, false, false, "rollback"},
		{updateSpeculative, 1, false, true, false, "undo"},
		{updateSettled, 1, false, false, false, "error"},
		{updateSettled, 1, true, false, false, "error"},
		{updateSettled, 1, false, true, false, "error"},
		{updateSettled, -1, false, false, false, "error"},
		{updatePending, -1, false, false, false, "error"},
		{updateSpeculative, -1, false, false, false, "error"},
		{updateSettled, 2, false, false, false, "error"},
		{updatePending, 2, false, false, false, "error"},
		{updateSpeculative, 2, true, false, false, "error"},
		{updateSettled, 0, false, false, true, "error"},
		{updatePending, 1, false, false, true, "error"},
		{updateSpeculative, 1, true, false, true, "error"},
	} {
		t.Run(fmt.Sprintf("%v %+d kept %v skip %v broken %v", c.update, c.ahead, c.kept, c.skip, c.broken), func(t *testing.T) {
			e := stageEnd{settled: 7, update: c.update}
			if c.broken {
				e.broken = errList
			}
			how, err := e.to(Target{Step: 7 + c.ahead, Skip: c.skip, Kept: c.kept, Update: stages.Update{Count: 1}})
			got := map[adoption]string{adoptReset: "reset", adoptApply: "apply", adoptCommit: "commit", adoptRollback: "rollback",
				adoptUndo: "undo"}[how]
			if err != nil {
				got = "error"
				if !errors.Is(err, errTarget) || c.broken != errors.Is(err, errList) {
					t.Errorf("the error is %v", err)
				}
			}
			if got != c.want {
				t.Errorf("got %s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// TestShadowTable walks the whole table of what a kept shadow does.
func TestShadowTable(t *testing.T) {
	errList := errors.New("list")
	for _, c := range []struct {
		ahead  int64 // of the target
		next   bool
		skip   bool
		broken bool
		want   string
	}{
		{0, false, false, false, "stays"},
		{0, true, false, false, "stays"}, // a step that was not decided
		{0, false, true, false, "stays"},
		{1, true, false, false, "folds"},
		{1, true, true, false, "stays"},
		{1, false, true, false, "stays"},
		{1, false, false, false, "error"},
		{-1, true, false, false, "error"},
		{2, true, false, false, "error"},
		{2, true, true, false, "error"},
		{0, false, false, true, "error"},
		{1, true, false, true, "error"},
	} {
		e := shadowEnd{settled: 7, next: c.next}
		if c.broken {
			e.broken = errList
		}
		fold, err := e.to(Target{Step: 7 + c.ahead, Skip: c.skip})
		got := map[bool]string{true: "folds", false: "stays"}[fold]
		if err != nil {
			got = "error"
			if !errors.Is(err, errTarget) || c.broken != errors.Is(err, errList) {
				t.Errorf("%+v: the error is %v", c, err)
			}
		}
		if got != c.want {
			t.Errorf("%+v: got %s (%v)", c, got, err)
		}
	}
}
