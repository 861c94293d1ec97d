package journal

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-ml/troupe/internal/wire"
)

func endedRun(n int) Ended {
	loss := 2.5
	return Ended{UUID: fmt.Sprint("uuid-", n), LogEvery: 10, Info: &wire.RunInfo{Name: "one"},
		Summary: &wire.RunSummary{Id: fmt.Sprintf("%08x", n), Name: "one", State: wire.RunSummary_FAILED, Step: 7, Steps: 20, Loss: &loss,
			Workers: []string{"w0"}, SubmittedNs: 1, EndedNs: 2, Error: "disk\nfull"},
		End: &wire.EndEvent{Step: 7, BestValLoss: math.NaN(), Error: &wire.ApiError{Texts: []string{"disk full"}}}}
}

// TestEnded: the next coordinator of the folder reads the last ended runs, at most LimitEnded of them.
func TestEnded(t *testing.T) {
	dir := t.TempDir()
	j, err := Open(dir)
	if err != nil || len(j.Ended()) > 0 {
		t.Fatal(j, err)
	}
	for n := range LimitEnded + 3 {
		if err := j.AddEnded(endedRun(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.AddEnded(endedRun(5)), j.Close()); err != nil { // it ends again, as the last
		t.Fatal(err)
	}
	if j, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	all := j.Ended()
	if len(all) != LimitEnded || all[0].Summary.GetId() != "00000003" || all[len(all)-1].Summary.GetId() != "00000005" || j.Damaged() != nil {
		t.Errorf("%d runs, from %v to %v; %v", len(all), all[0].Summary, all[len(all)-1].Summary, j.Damaged())
	}
	if want := endedRun(5); !proto.Equal(all[len(all)-1].Summary, want.Summary) || !proto.Equal(all[len(all)-1].Info, want.Info) ||
		!proto.Equal(all[len(all)-1].End, want.End) {
		t.Errorf("got %v, want %v", all[len(all)-1], want)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	// A damaged list is renamed, and begins empty.
	if err := os.WriteFile(filepath.Join(dir, endedFile), []byte(`{"version": 1, "runs": [{`), 0o600); err != nil {
		t.Fatal(err)
	}
	if j, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	defer j.Close() //nolint:errcheck // of a test
	if len(j.Ended()) > 0 || !errors.Is(j.Damaged(), ErrDamaged) || !strings.Contains(j.Damaged().Error(), "ended.json.damaged") {
		t.Errorf("%v: %v", j.Ended(), j.Damaged())
	}
	if _, err := os.Stat(filepath.Join(dir, endedFile+".damaged")); err != nil {
		t.Error(err)
	}
}

// FuzzEnded: what is read is written the same again.
func FuzzEnded(f *testing.F) {
	text, err := encodeEnded([]Ended{endedRun(1), endedRun(2)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version": 1, "runs": [{"uuid": "", "log_every": 0, "summary": {"id": "00000000", "state": 9}, "end": {}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		all, err := decodeEnded(text)
		if err != nil {
			return
		}
		written, err := encodeEnded(all)
		if err != nil {
			t.Skip(err) // such as text that is not UTF-8
		}
		again, err := decodeEnded(written)
		if err != nil || len(again) != len(all) {
			t.Errorf("%d runs are read again as %d: %v", len(all), len(again), err)
		}
	})
}
