package data

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/scheduler"
)

// tableFile writes a table to train by.
func tableFile(t testing.TB, csv string) string {
	t.Helper()
	return testrun.Write(t, filepath.Join(t.TempDir(), "mine.csv"), csv)
}

// gpipeOver is GPipe over a placement with any number of chunks a rank: all forwards, then, as
// their mirror image in time, all backwards.
func gpipeOver(t testing.TB, p scheduler.Placement, ranks, perRank, microbatches int) *scheduler.Table {
	t.Helper()
	table, err := scheduler.Forwards(p, ranks, perRank, microbatches)
	if err != nil {
		t.Fatal(err)
	}
	table.ForwardOnly = false
	backwards := make([][]scheduler.Action, ranks)
	for _, row := range table.Ranks {
		for _, a := range row {
			b := scheduler.Action{Chunk: int32(table.NumChunks-1) - a.Chunk, Type: scheduler.B, Microbatch: a.Microbatch}
			rank := table.RankOf(int(b.Chunk))
			backwards[rank] = append(backwards[rank], b)
		}
	}
	for rank, row := range backwards {
		table.Ranks[rank] = append(table.Ranks[rank], row...)
	}
	return table
}

// layoutOf are the keys of a table's own size.
func layoutOf(table *scheduler.Table) []string {
	return []string{fmt.Sprintf("pipeline.stages=%d", table.NumRanks()), fmt.Sprintf("pipeline.chunks=%d", table.NumChunks/table.NumRanks())}
}

// TestTables: the bits are those of one stage by tables of one's own in every placement, by
// those in every form of the dialect, and by interleaved schedules of any number of microbatches.
func TestTables(t *testing.T) {
	own := func(table *scheduler.Table, csv string) []string {
		return append(layoutOf(table), "pipeline.schedule="+tableFile(t, csv))
	}
	var cases []tableCase
	for _, size := range [][3]int{{2, 3, 8}, {2, 4, 8}, {3, 3, 8}, {3, 4, 2}} {
		table := gpipeOver(t, scheduler.V, size[0], size[1], size[2])
		cases = append(cases, tableCase{fmt.Sprintf("V of %d chunks on %d ranks, %d microbatches", size[1], size[0], size[2]), size[2],
			own(table, table.CSV()), false})
	}
	zb, err := scheduler.Generate(scheduler.Spec{Schedule: scheduler.ZB1P, Ranks: 2, Chunks: 2, Microbatches: 8})
	if err != nil {
		t.Fatal(err)
	}
	upper := strings.TrimSuffix(tableFile(t, ""), "csv") + "CSV"
	testrun.Write(t, upper, zb.CSV())
	cases = append(cases,
		tableCase{"with sends, receives and waits", 8, own(zb, zb.CSVWithCommunication()), false},
		tableCase{"its own number of chunks", 8, []string{"pipeline.stages=2", "pipeline.schedule=" + tableFile(t, zb.CSV())}, false},
		tableCase{"spaces and quotes", 8, own(zb, "\ufeff\""+strings.ReplaceAll(strings.TrimSuffix(strings.ReplaceAll(zb.CSV(), ",", `", "`),
			"\n"), "\n", "\" \r\n\"")+"\"\r\n"), false},
		tableCase{"a name that ends in .CSV", 8, append(layoutOf(zb), "pipeline.schedule="+upper), false})
	for _, schedule := range []string{scheduler.Interleaved, scheduler.ZB1P} {
		for _, m := range []int{1, 2, 7, 15} {
			cases = append(cases, tableCase{fmt.Sprintf("%s, %d microbatches on 4 ranks", schedule, m), m,
				[]string{"pipeline.stages=4", "pipeline.chunks=2", "pipeline.schedule=" + schedule}, false})
		}
	}
	for _, stages := range []int{2, 3} { // may choose a V of three
		cases = append(cases, tableCase{fmt.Sprintf("auto, 3 chunks on %d ranks", stages), 8,
			[]string{fmt.Sprintf("pipeline.stages=%d", stages), "pipeline.chunks=3", "pipeline.schedule=auto"}, false})
	}
	checkTables(t, cases)
}

// tableCase is a layout to train under.
type tableCase struct {
	name         string
	microbatches int
	sets         []string
	rounds       bool // in another order: the losses are close, the bits differ
}

// checkTables trains by tables and compares the bits with those of one stage.
func checkTables(t *testing.T, cases []tableCase) {
	t.Helper()
	alone := make(map[int]string) // folders of runs with one stage, by microbatches
	for _, c := range cases {
		batch := []string{fmt.Sprintf("batch.sequences=%d", c.microbatches), "batch.microbatch=1"}
		if alone[c.microbatches] == "" {
			alone[c.microbatches] = filepath.Join(t.TempDir(), "out")
			testrun.Train(t, alone[c.microbatches], batch...)
		}
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, out, slices.Concat(batch, c.sets)...)
			if c.rounds {
				closeTo(t, alone[c.microbatches], out)
				return
			}
			testrun.SameFigures(t, alone[c.microbatches], out)
			testrun.SameState(t, alone[c.microbatches], out, 6)
		})
	}
}

// TestOutOfOrderTables: a table that changes bits says so, and only such a one; the training
// is right.
func TestOutOfOrderTables(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "out")
	batch := []string{"batch.sequences=3", "pipeline.stages=2", "model.tie_embeddings=false"}
	testrun.Train(t, alone, append(batch, "pipeline.stages=1")...)
	for _, c := range []struct{ name, csv, warns string }{
		{"in order", "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n", ""},
		{"forwards before the last chunk", "0F2,0F0,0F1,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n", ""},
		{"forwards of the last chunk", "0F0,0F1,0F2,0B0,0B1,0B2\n1F2,1F0,1F1,1B0,1B1,1B2\n",
			"computes forwards of the last chunk out of microbatch order"},
		{"weight gradients", "0F0,0F1,0F2,0B0,0B2,0B1\n1F0,1F1,1F2,1B0,1B1,1B2\n", "computes weight gradients out of microbatch order"},
		{"input gradients", "0F0,0F1,0F2,0I0,0I2,0I1,0W0,0W1,0W2\n1F0,1F1,1F2,1B0,1B1,1B2\n", ""}, // its layers make gradients apart
	} {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			_, events := testrun.Train(t, out, append(batch, "pipeline.schedule="+tableFile(t, c.csv))...)
			if got := warned(events, "out of microbatch order"); (got != "") != (c.warns != "") || !strings.Contains(got, c.warns) {
				t.Errorf("it warns %q, want %q in it", got, c.warns)
			}
			differs := !slices.Equal(bits(t, alone), bits(t, out))
			if differs != (c.warns != "") {
				t.Errorf("its bits differ from those of one stage: %t", differs)
			}
			closeTo(t, alone, out)
		})
	}
}

// warned is the warning among events that has a text in it; "" if there is none.
func warned(events []troupe.Event, text string) string {
	for _, e := range events {
		if w, ok := e.(troupe.WarningEvent); ok && strings.Contains(w.Text, text) {
			return w.Text
		}
	}
	return ""
}

// bits are the figures of a run, and its last weights.
func bits(t testing.TB, out string) (all []string) {
	t.Helper()
	for _, r := range testrun.Records(t, out) {
		all = append(all, testrun.Figures(r))
	}
	return append(all, testrun.Read(t, filepath.Join(testrun.StepDir(out, 6), "model.safetensors")))
}

// closeTo compares the losses of two runs, which differ by rounding at most.
func closeTo(t testing.TB, want, got string) {
	t.Helper()
	a, b := testrun.Records(t, want), testrun.Records(t, got)
	if len(a) != len(b) {
		t.Fatalf("%d lines, want %d", len(b), len(a))
	}
	for i := range a {
		if x, y := a[i].Loss, b[i].Loss; x != nil && y != nil && !(*x-*y < 1e-5 && *y-*x < 1e-5) {
			t.Errorf("line %d: loss %v, want %v", i+1, *y, *x)
		}
	}
}
