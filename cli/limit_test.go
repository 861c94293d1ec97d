package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/troupe-ml/troupe/telemetry"
)

// cmdAdopt replaces a config's last section, [batch], by the recommendation of `engine plan`: adopt REPORT CONFIG NEW.
func cmdAdopt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: adopt REPORT CONFIG NEW")
	}
	_, report, ok := strings.Cut(ts.ReadFile(args[0]), "\n[pipeline]\n")
	proposed, _, whole := strings.Cut(report, "\n\n")
	before, batch, last := strings.Cut(ts.ReadFile(args[1]), "[batch]\n")
	if !ok || !whole || !last {
		ts.Fatalf("no proposal in %s, or no [batch] in %s", args[0], args[1])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(before+"[pipeline]\n"+proposed+"\n"+batch), 0o600))
}

// cmdNear compares the losses of two metrics.jsonl with a relative tolerance of 1e-5: near FILE FILE.
func cmdNear(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: near FILE FILE")
	}
	a, err := stepLosses(ts.ReadFile(args[0]))
	ts.Check(err)
	b, err := stepLosses(ts.ReadFile(args[1]))
	ts.Check(err)
	if len(a) == 0 || len(a) != len(b) {
		ts.Fatalf("%d losses and %d", len(a), len(b))
	}
	for i := range a {
		if math.Abs(a[i]-b[i]) > 1e-5*a[i] {
			ts.Fatalf("loss %d is %v and %v", i, a[i], b[i])
		}
	}
}

// stepLosses returns the losses of a run's steps.
func stepLosses(text string) (all []float64, err error) {
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var r telemetry.Record
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("the metrics: %w", err)
		}
		if r.Loss != nil {
			all = append(all, *r.Loss)
		}
	}
}
