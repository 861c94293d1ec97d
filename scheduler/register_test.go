package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/troupe-ml/troupe/internal/base/registry"
)

// register registers a schedule for the time of a test.
func register(t *testing.T, name string, g Generator) {
	t.Helper()
	was := own
	var names []string
	for _, k := range builtIn {
		names = append(names, k.name)
	}
	own = registry.New[kind]("schedule", names...)
	t.Cleanup(func() { own = was })
	Register(name, g)
}

// likeGPipe is gpipe, written as a program would.
func likeGPipe(s Spec) ([][]Action, error) {
	if s.Microbatches%2 != 0 {
		return nil, fmt.Errorf("%d microbatches are odd: use an even number", s.Microbatches)
	}
	rows := make([][]Action, s.Ranks)
	for r := range rows {
		for _, typ := range []Type{F, B} {
			for m := range s.Microbatches {
				rows[r] = append(rows[r], Action{Chunk: int32(r), Type: typ, Microbatch: int32(m)})
			}
		}
	}
	return rows, nil
}

// TestRegistered: a registered schedule is one like the others.
func TestRegistered(t *testing.T) {
	register(t, "mine", Generator{Rows: likeGPipe})
	if got := Schedules(); len(got) != len(builtIn)+1 || got[len(got)-1] != "mine" {
		t.Errorf("Schedules() = %v", got)
	}
	if n := DefaultChunks("mine"); n != 1 {
		t.Errorf("DefaultChunks = %d", n)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := Spec{Schedule: "mine", Ranks: rapid.IntRange(1, 6).Draw(t, "ranks"), Chunks: 1,
			Microbatches: 2 * rapid.IntRange(1, 6).Draw(t, "half the microbatches"), ForwardOnly: rapid.Bool().Draw(t, "forward only")}
		mine, err := Generate(s)
		if err != nil {
			t.Fatal(err)
		}
		s.Schedule = GPipe
		theirs, err := Generate(s)
		if err != nil {
			t.Fatal(err)
		}
		if mine.String() != theirs.String() {
			t.Errorf("mine\n%s\ngpipe\n%s", mine, theirs)
		}
	})
	deferred, err := Generate(Spec{Schedule: "mine", Ranks: 2, Chunks: 1, Microbatches: 4, DeferWeights: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got := deferred.Ranks[1][len(deferred.Ranks[1])-1]; got.Type != W || got.Microbatch != 3 {
		t.Errorf("the last action is %v, want 1W3, deferred", got)
	}
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Schedule: "mine", Ranks: 2, Chunks: 1, Microbatches: 3}, "schedule mine: 3 microbatches are odd"},
		{Spec{Schedule: "mine", Ranks: 2, Chunks: 2, Microbatches: 4}, "schedule mine holds 1 chunk on each rank, not 2"},
		{Spec{Schedule: "yours", Ranks: 2, Chunks: 1, Microbatches: 4}, "auto, mine"},
	} {
		if _, err := Generate(c.spec); !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q in it", c.spec, err, c.want)
		}
	}
}

// TestRegisteredBest: Auto takes a registered schedule that ends first, and leaves one that
// is wrong.
func TestRegisteredBest(t *testing.T) {
	spec := Spec{Schedule: Auto, Ranks: 2, Chunks: 2, Microbatches: 4}
	want := generate(t, spec).String()
	tried := 0
	register(t, "mine", Generator{Placement: V, Rows: func(s Spec) ([][]Action, error) {
		tried++
		rows, err := byRank(Spec.zbv)(s)
		slices.Reverse(rows[0])
		return rows, err
	}})
	if got := generate(t, spec).String(); got != want || tried == 0 {
		t.Errorf("tried %d times; the table is\n%s\nnot\n%s", tried, got, want)
	}
}

// TestRegisteredWrong: what a generator makes wrong is found before anything uses it.
func TestRegisteredWrong(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(rows [][]Action) [][]Action
		is     error
		want   string
	}{
		{"a row is missing", func(rows [][]Action) [][]Action { return rows[1:] }, ErrTable, "made 1 row for 2 ranks"},
		{"no rows", func([][]Action) [][]Action { return nil }, ErrTable, "made 0 rows for 2 ranks"},
		{"an action is missing", func(rows [][]Action) [][]Action { rows[1] = rows[1][:len(rows[1])-1]; return rows }, ErrIncomplete,
			"which this program registered"},
		{"an action is strange", func(rows [][]Action) [][]Action { rows[0][0].Chunk = -1; return rows }, ErrTable,
			"which this program registered"},
		{"an action is on the wrong rank", func(rows [][]Action) [][]Action { rows[0], rows[1] = rows[1], rows[0]; return rows }, ErrRank,
			"which this program registered"},
		{"the order is reversed", func(rows [][]Action) [][]Action { slices.Reverse(rows[0]); return rows }, ErrOrder,
			"which this program registered"},
		{"forwards of the loss are out of order", func(rows [][]Action) [][]Action { slices.Reverse(rows[1][:4]); return rows }, ErrOrder,
			"forwards of the last chunk do not run in ascending microbatch order"},
		{"input gradients are out of order", func(rows [][]Action) [][]Action {
			b := rows[0][4:]
			apart := slices.Concat(slices.Clone(b), b)
			for i := range apart {
				apart[i].Type = []Type{I, W}[i/4]
			}
			slices.Reverse(apart[:4])
			rows[0] = slices.Concat(rows[0][:4], apart)
			return rows
		}, ErrOrder, "input gradients do not run in ascending microbatch order"},
		{"weight gradients are out of order", func(rows [][]Action) [][]Action {
			for _, row := range rows {
				slices.Reverse(row[len(row)/2:])
			}
			return rows
		}, ErrOrder, "ascending microbatch order"},
	} {
		t.Run(c.name, func(t *testing.T) {
			register(t, "mine", Generator{Rows: func(s Spec) ([][]Action, error) {
				rows, err := likeGPipe(s)
				return c.change(rows), err
			}})
			_, err := Generate(Spec{Schedule: "mine", Ranks: 2, Chunks: 1, Microbatches: 4, DeferWeights: 4})
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "mine") {
				t.Errorf("%v, want %v with %q", err, c.is, c.want)
			}
		})
	}
}

// TestRegisterPanics: a programmer's mistakes.
func TestRegisterPanics(t *testing.T) {
	rows := likeGPipe
	register(t, "mine", Generator{Rows: rows})
	for _, c := range []struct {
		name string
		g    Generator
		want string
	}{
		{"mine", Generator{Rows: rows}, "registered twice"},
		{GPipe, Generator{Rows: rows}, "built in"},
		{Auto, Generator{Rows: rows}, "built in"},
		{"my.csv", Generator{Rows: rows}, "lower-case word"},
		{"other", Generator{}, "Rows is nil"},
		{"other", Generator{Rows: rows, Placement: 9}, "unknown placement"},
		{"other", Generator{Rows: rows, ChunksMin: 2, ChunksMax: 1}, "2 to 1 chunks"},
		{"other", Generator{Rows: rows, ChunksMin: -1}, "-1 to -1 chunks"},
		{"other", Generator{Rows: rows, Placement: V, ChunksMin: 1}, "1 to 1 chunks on each rank are impossible with placement V"},
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, c.want) {
					t.Errorf("Register(%q, %+v) panics with %q, want %q in it", c.name, c.g, text, c.want)
				}
			}()
			Register(c.name, c.g)
		}()
	}
}
