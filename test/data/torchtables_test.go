package data

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/scheduler"
)

// torchTable is a table in the index of testdata/torchtables.py.
type torchTable struct {
	Name         string `json:"name"`
	Schedule     string `json:"schedule"`
	Ranks        int    `json:"ranks"`
	Stages       int    `json:"stages"` // PyTorch's, which are chunks here
	Microbatches int    `json:"microbatches"`
}

// ofTorch are the schedules here whose tables are PyTorch's, action by action.
var ofTorch = map[string]string{
	"Interleaved1F1B": scheduler.Interleaved, "InterleavedZeroBubble": scheduler.ZB1P, "ZBVZeroBubble": scheduler.ZBV,
	"DualPipeV": scheduler.DualPipeV,
}

// TestTorchTables: the PyTorch that TROUPE_PYTHON names writes tables with communications, of
// all its multi-stage schedules, which are read, proved, simulated and trained by here; and it
// loads as many of Troupe's. `make check-torch-tables` runs it.
func TestTorchTables(t *testing.T) {
	python := os.Getenv("TROUPE_PYTHON")
	if python == "" {
		t.Skip("make check-torch-tables sets TROUPE_PYTHON, a Python with torch")
	}
	const count = 120
	seed := os.Getenv("TROUPE_TORCH_SEED")
	if seed == "" {
		seed = "1"
	}
	run := func(arguments ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", "torchtables.py")},
			arguments...)...).CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatal(err)
		}
	}
	theirs, ours := t.TempDir(), t.TempDir()
	run("write", theirs, "--count", fmt.Sprint(count), "--seed", seed)
	readTorchTables(t, theirs, count)
	writeTablesForTorch(t, ours, count, seed)
	run("read", ours)
}

// readTorchTables reads, proves, simulates and trains by PyTorch's tables.
func readTorchTables(t *testing.T, folder string, count int) {
	t.Helper()
	var index []torchTable
	if err := json.Unmarshal([]byte(testrun.Read(t, filepath.Join(folder, "index.json"))), &index); err != nil {
		t.Fatal(err)
	}
	if len(index) != count {
		t.Fatalf("PyTorch wrote %d tables, want %d", len(index), count)
	}
	var cases []tableCase
	trained, reordered, equal := map[string]bool{}, 0, 0
	for _, x := range index {
		file := filepath.Join(folder, x.Name+".comms.csv")
		table, err := scheduler.ReadCSV(x.Schedule, testrun.Read(t, file))
		if err != nil {
			t.Errorf("%+v: %v", x, err)
			continue
		}
		plain, err := scheduler.ReadCSV(x.Schedule, testrun.Read(t, filepath.Join(folder, x.Name+".compute.csv")))
		if err != nil || !reflect.DeepEqual(plain, table) {
			t.Errorf("%+v: with communications it is not the table that it is without: %v", x, err)
		}
		if table.NumRanks() != x.Ranks || table.NumChunks != x.Stages || table.Microbatches != x.Microbatches {
			t.Errorf("%+v: read as %d ranks, %d chunks, %d microbatches", x, table.NumRanks(), table.NumChunks, table.Microbatches)
		}
		if name := ofTorch[x.Schedule]; name != "" && x.Stages > x.Ranks {
			own, err := scheduler.Generate(scheduler.Spec{Schedule: name, Ranks: x.Ranks, Chunks: x.Stages / x.Ranks, Microbatches: x.Microbatches})
			if err != nil || own.CSV() != table.CSV() {
				t.Errorf("%+v: %v; PyTorch's table is\n%s, %s is\n%v", x, err, table, name, own)
			}
			equal++
		}
		report, timeline, err := scheduler.Analyse(table)
		if err != nil || !(timeline.Makespan > 0) {
			t.Errorf("%+v: %v", x, err)
			continue
		}
		rounds := report.OutOfOrder.Any() // LoopedBFS, whose backwards come in reverse
		if rounds {
			reordered++
		}
		trained[x.Schedule] = true
		cases = append(cases, tableCase{fmt.Sprintf("%s %s, %d ranks, %d stages, %d microbatches", x.Name, x.Schedule, x.Ranks, x.Stages,
			x.Microbatches), x.Microbatches,
			append(layoutOf(table), "pipeline.schedule="+file), rounds})
	}
	checkTables(t, cases)
	t.Logf("%d of them are the tables that Troupe makes, action by action", equal)
	t.Logf("read, proved and simulated %d tables with communications, of %d schedules; trained by %d with the bits of one stage, by %d, which are out of microbatch order, with its losses within 1e-5",
		len(index), len(trained), len(cases)-reordered, reordered)
	if len(trained) < 5 {
		t.Errorf("tables of %v, want those of 5 schedules", trained)
	}
}

// writeTablesForTorch writes tables of random sizes of every schedule, with communications.
func writeTablesForTorch(t *testing.T, folder string, count int, seed string) {
	t.Helper()
	var n uint64
	if _, err := fmt.Sscan(seed, &n); err != nil {
		t.Fatalf("TROUPE_TORCH_SEED: %v", err)
	}
	r := rand.New(rand.NewPCG(n, 0))
	names := slices.DeleteFunc(scheduler.Schedules(), func(name string) bool { return name == scheduler.None })
	var index []torchTable
	for len(index) < count {
		name := names[len(index)%len(names)]
		table, err := scheduler.Generate(scheduler.Spec{Schedule: name, Ranks: 1 + r.IntN(5), Chunks: scheduler.DefaultChunks(name) + r.IntN(3),
			Microbatches: 1 + r.IntN(14)})
		if err != nil {
			continue
		}
		x := torchTable{fmt.Sprintf("%03d", len(index)), name, table.NumRanks(), table.NumChunks, table.Microbatches}
		testrun.Write(t, filepath.Join(folder, x.Name+".csv"), table.CSVWithCommunication())
		index = append(index, x)
	}
	text, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Write(t, filepath.Join(folder, "index.json"), string(text))
	t.Logf("wrote %d tables of %d schedules (seed %s)", count, len(names), seed)
}
