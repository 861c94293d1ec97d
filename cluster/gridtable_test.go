package cluster_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/telemetry"
)

// gridTable has grids, each with other schedules that give the same bits.
var gridTable = []struct {
	name      string
	sets      []string
	schedules []string
	plain     string // the row of the same bits without ZeRO
}{
	{"dp2, wide", []string{wide, "parallel.data=2"}, nil, ""},
	{"dp2 zero-3, wide", []string{wide, "parallel.data=2", "parallel.zero=3"}, nil, "dp2, wide"},
	{"pp2 dp2, wide, breadth-first", []string{wide, "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=3",
		"pipeline.schedule=breadth-first"}, []string{"interleaved"}, ""},
	{"pp2 dp2 zero-2, wide, breadth-first", []string{wide, "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=3",
		"pipeline.schedule=breadth-first", "parallel.zero=2"}, nil, "pp2 dp2, wide, breadth-first"},
	{"pp2 dp2 zero-3, wide, breadth-first", []string{wide, "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=3",
		"pipeline.schedule=breadth-first", "parallel.zero=3"}, nil, "pp2 dp2, wide, breadth-first"},
	{"tp2 pp2 dp2 zero-2, wide, breadth-first", []string{wide, "parallel.tensor=2", "parallel.data=2", "pipeline.stages=2",
		"pipeline.chunks=3", "pipeline.schedule=breadth-first", "parallel.zero=2"}, nil, ""},
	{"tp2", []string{"parallel.tensor=2"}, nil, ""},
	{"tp2 sequence", []string{"parallel.tensor=2", "parallel.sequence=true"}, nil, ""},
	{"tp4 sequence", []string{"parallel.tensor=4", "parallel.sequence=true"}, nil, ""},
	{"dp2", []string{"parallel.data=2"}, nil, ""},
	{"dp3, uneven", []string{"parallel.data=3"}, nil, ""},
	{"dp2 zero-1", []string{"parallel.data=2", "parallel.zero=1"}, nil, "dp2"},
	{"dp3 zero-1, uneven", []string{"parallel.data=3", "parallel.zero=1"}, nil, "dp3, uneven"},
	{"tp2 pp2", []string{"parallel.tensor=2", "pipeline.stages=2"}, []string{"zb-h1", "gpipe"}, ""},
	{"pp2 dp2", []string{"parallel.data=2", "pipeline.stages=2"}, []string{"zb-h1", "gpipe"}, ""},
	{"pp2 dp2 zero-1", []string{"parallel.data=2", "pipeline.stages=2", "parallel.zero=1"}, []string{"zb-h1"}, "pp2 dp2"},
	{"tp2 dp2", []string{"parallel.tensor=2", "parallel.data=2"}, nil, ""},
	{"tp2 pp2 dp2", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2"}, []string{"zb-h1", "gpipe"}, ""},
	{"tp2 pp2 dp2 zero-1", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "parallel.zero=1"}, nil, "tp2 pp2 dp2"},
	{"tp 1 and 2", []string{"parallel.tensor=[1,2]", "pipeline.stages=2"}, []string{"zb-h1", "gpipe"}, ""},
	{"tp 2 and 1, dp2 sequence, interleaved", []string{"parallel.tensor=[2,1]", "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2",
		"pipeline.schedule=interleaved", "parallel.sequence=true"}, []string{"breadth-first"}, ""},
	{"tp 2, 1 and 4", []string{"parallel.tensor=[2,1,4]", "pipeline.stages=3"}, []string{"zb-h1"}, ""},
	{"tp 1 and 2, dp2 zero-1", []string{"parallel.tensor=[1,2]", "parallel.data=2", "pipeline.stages=2", "parallel.zero=1"}, nil, ""},
	{"tp2 pp2 dp2 sequence, interleaved", []string{"parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "pipeline.chunks=2",
		"pipeline.schedule=interleaved", "parallel.sequence=true", "parallel.order=pp-dp-tp"}, []string{"zb-v"}, ""},
	{"tp2 dp2 zero-3, wide", []string{wide, "parallel.tensor=2", "parallel.data=2", "parallel.zero=3"}, nil, ""},
	// One microbatch for each replica: ZeRO-2 saves something without a pipeline.
	{"dp2, wide, one microbatch", []string{wide, large, "parallel.data=2"}, nil, ""},
	{"dp2 zero-2, wide, one microbatch", []string{wide, large, "parallel.data=2", "parallel.zero=2"}, nil, "dp2, wide, one microbatch"},
	{"tp2 dp2 sequence zero-2, wide, one microbatch", []string{wide, large, "parallel.tensor=2", "parallel.sequence=true", "parallel.data=2",
		"parallel.zero=2"}, nil, ""},
	// Muon, whose matrices are whole or have homes.
	{"tp2, muon", []string{muon, "parallel.tensor=2"}, nil, ""},
	{"dp2, muon", []string{muon, "parallel.data=2"}, nil, ""},
	{"dp2 zero-1, muon", []string{muon, "parallel.data=2", "parallel.zero=1"}, nil, "dp2, muon"},
	{"dp3, uneven, muon", []string{muon, "parallel.data=3"}, nil, ""},
	{"dp3 zero-1, uneven, muon", []string{muon, "parallel.data=3", "parallel.zero=1"}, nil, "dp3, uneven, muon"},
	{"tp4 sequence, muon", []string{muon, "parallel.tensor=4", "parallel.sequence=true"}, nil, ""},
	{"tp2 pp2 dp2, muon", []string{muon, "parallel.tensor=2", "parallel.data=2", "pipeline.stages=2"}, []string{"zb-h1"}, ""},
	{"tp2 pp2 dp2 zero-1, muon", []string{muon, "parallel.tensor=2", "parallel.data=2", "pipeline.stages=2", "parallel.zero=1"}, nil,
		"tp2 pp2 dp2, muon"},
	{"tp 1 and 2, cp2 zero-1, muon", []string{muon, "parallel.context=2", "parallel.tensor=[1,2]", "pipeline.stages=2", "parallel.zero=1"},
		nil, ""},
	// Experts, whole on each rank and shared.
	{"dp2, experts", []string{moe, "parallel.data=2"}, nil, ""},
	{"tp2, experts", []string{moe, "parallel.tensor=2"}, nil, ""},
	{"tp2 pp2 sequence, experts", []string{moe, "parallel.tensor=2", "parallel.sequence=true", "pipeline.stages=2"}, []string{"zb-h1"}, ""},
	{"tp2 dp2, experts", []string{moe, "parallel.tensor=2", "parallel.data=2"}, nil, ""},
	{"tp2 dp2 ep2, experts", []string{moe, "parallel.tensor=2", "parallel.data=2", "parallel.expert=2"}, nil, "tp2 dp2, experts"},
	{"tp2 dp2 ep2 pp2 sequence, experts", []string{moe, "parallel.tensor=2", "parallel.sequence=true", "parallel.data=2",
		"parallel.expert=2", "pipeline.stages=2"}, []string{"zb-h1"}, ""},
	{"dp2 ep2, experts", []string{moe, "parallel.data=2", "parallel.expert=2"}, nil, "dp2, experts"},
	{"dp4, experts", []string{moe, "parallel.data=4"}, nil, ""},
	{"dp4 ep2, experts", []string{moe, "parallel.data=4", "parallel.expert=2"}, nil, "dp4, experts"},
	{"dp4 ep4, experts", []string{moe, "parallel.data=4", "parallel.expert=4"}, nil, "dp4, experts"},
	{"dp4 ep4 zero-1, experts", []string{moe, "parallel.data=4", "parallel.expert=4", "parallel.zero=1"}, nil, "dp4, experts"},
	{"pp2 dp4 ep2 zero-3, experts", []string{moe, "parallel.data=4", "parallel.expert=2", "parallel.zero=3", "pipeline.stages=2"}, nil,
		"dp4, experts"},
	{"dp4, wide, experts", []string{wide, moe, "parallel.data=4"}, nil, ""},
	{"pp2 dp4 ep2 zero-3, overlap, wide, experts", []string{wide, moe, "parallel.data=4", "parallel.expert=2", "parallel.zero=3",
		"parallel.expert_overlap=true", "pipeline.stages=2", "pipeline.schedule=1f1b"}, []string{"eager-1f1b"}, "dp4, wide, experts"},
	{"pp2 dp2 ep2, experts", []string{moe, "parallel.data=2", "parallel.expert=2", "pipeline.stages=2"}, []string{"zb-h1", "gpipe"},
		"dp2, experts"},
	{"pp2 dp4 ep2, interleaved, experts", []string{moe, "parallel.data=4", "parallel.expert=2", "pipeline.stages=2", "pipeline.chunks=2",
		"pipeline.schedule=interleaved", "parallel.order=pp-dp"}, []string{"zb-v"}, "dp4, experts"},
	{"cp2 dp2, experts", []string{moe, "parallel.context=2", "parallel.data=2"}, nil, ""},
	{"cp2 dp2 ep4, experts", []string{moe, "parallel.context=2", "parallel.data=2", "parallel.expert=4"}, nil, "cp2 dp2, experts"},
	{"pp2 cp2 dp2 ep2, experts", []string{moe, "parallel.context=2", "parallel.data=2", "parallel.expert=2", "pipeline.stages=2"},
		[]string{"zb-h1"}, "cp2 dp2, experts"},
	// Whole experts in tensor groups, whose ranks share them or not.
	{"tp2 dp2, whole experts", []string{moe, "parallel.tensor=2", "parallel.data=2", "parallel.expert_tensor=1"}, nil, ""},
	{"tp2 dp2 ep4, whole experts", []string{moe, "parallel.tensor=2", "parallel.data=2", "parallel.expert_tensor=1", "parallel.expert=4"},
		nil, "tp2 dp2, whole experts"},
	{"tp2 dp2 ep2 zero-1, whole experts", []string{moe, "parallel.tensor=2", "parallel.data=2", "parallel.expert_tensor=1",
		"parallel.expert=2", "parallel.zero=1"}, nil, "tp2 dp2, whole experts"},
	{"tp2 ep2 pp2 sequence, whole experts", []string{moe, "parallel.tensor=2", "parallel.sequence=true", "parallel.expert_tensor=1",
		"parallel.expert=2", "pipeline.stages=2"}, []string{"zb-h1"}, ""},
	{"tp2 cp2 ep4, whole experts", []string{moe, "parallel.tensor=2", "parallel.context=2", "parallel.expert_tensor=1",
		"parallel.expert=4"}, nil, ""},
	// In a U the edge has the first layers, the last ones and the loss; between are stages that are neither first nor last,
	// or the last stage alone.
	{"u pp2", slices.Concat(edge(2), []string{"pipeline.stages=2", "pipeline.schedule=u-shape", "pipeline.layout=Et|tttt|tL"}), nil, ""},
	{"u pp3", slices.Concat(edge(3), []string{"pipeline.stages=3", "pipeline.schedule=u-shape", "pipeline.layout=Et|tt|tt|tL"}), nil, ""},
	{"u, tp 1 and 2", slices.Concat(edge(3), []string{"parallel.tensor=[1,2]", "pipeline.stages=2", "pipeline.schedule=u-shape",
		"pipeline.layout=Ett|ttt|tL"}), nil, ""},
	{"u, tp 2 and 1", slices.Concat(edge(3), []string{"parallel.tensor=[2,1]", "pipeline.stages=2", "pipeline.schedule=u-shape",
		"pipeline.layout=Et|tttt|tL", "parallel.edges=scatter"}), nil, ""},
	{"u, tp 1, 2 and 2 sequence", slices.Concat(edge(5), []string{"parallel.tensor=[1,2,2]", "pipeline.stages=3", "pipeline.schedule=u-shape",
		"pipeline.layout=Et|tt|tt|tL", "parallel.sequence=true"}), nil, ""},
	{"u, tp 1 and 2, dp2 zero-1", slices.Concat(edge(6), []string{"parallel.tensor=[1,2]", "parallel.data=2", "parallel.zero=1",
		"pipeline.stages=2", "pipeline.schedule=u-shape", "pipeline.layout=Ett|ttt|tL"}), nil, ""},
	{"u, tp2 pp2", slices.Concat(edge(4), []string{"parallel.tensor=2", "pipeline.stages=2", "pipeline.schedule=u-shape",
		"pipeline.layout=Et|tttt|tL"}), nil, ""},
	{"cp2", []string{"parallel.context=2"}, nil, ""},
	{"cp4", []string{"parallel.context=4"}, nil, ""},
	{"cp2 pp2", []string{"parallel.context=2", "pipeline.stages=2"}, []string{"zb-h1", "gpipe"}, ""},
	{"cp2 zero-1", []string{"parallel.context=2", "parallel.zero=1"}, nil, "cp2"},
	{"cp2 dp2, wide", []string{wide, "parallel.context=2", "parallel.data=2"}, nil, ""},
	{"cp2 dp2 zero-3, wide", []string{wide, "parallel.context=2", "parallel.data=2", "parallel.zero=3"}, nil, "cp2 dp2, wide"},
	{"tp2 cp2 sequence, interleaved", []string{"parallel.tensor=2", "parallel.context=2", "parallel.sequence=true", "pipeline.stages=2",
		"pipeline.chunks=2", "pipeline.schedule=interleaved"}, []string{"breadth-first"}, ""},
	{"tp2 cp2 pp2 dp2", []string{"parallel.tensor=2", "parallel.context=2", "parallel.data=2", "pipeline.stages=2"}, nil, ""},
	{"tp 1 and 2, cp2 zero-1", []string{"parallel.tensor=[1,2]", "parallel.context=2", "pipeline.stages=2", "parallel.zero=1"}, nil, ""},
	{"u, tp 1 and 2, cp2", slices.Concat(edge(6), []string{"parallel.tensor=[1,2]", "parallel.context=2", "pipeline.stages=2",
		"pipeline.schedule=u-shape", "pipeline.layout=Ett|ttt|tL"}), nil, ""},
}

// edge returns keys that keep the data and stage 0's weights on the coordinator's host, with one worker for each rank.
func edge(ranks int) []string {
	return []string{"cluster.edge=true", "cluster.place=[\"" + strings.Join(workers(ranks), `","`) + "\"]"}
}

// wide is a model large enough for ZeRO-2 and 3 to save memory.
const wide = "model.hidden=128"

// large makes a step two microbatches.
const large = "batch.microbatch=4"

// moe is a model with experts, in whose place the family's keys have no effect.
const moe = "model.family=mixtral"

// muon is another optimizer than that of the other rows.
const muon = "optimizer.name=muon"

// ofAll returns the grid's keys that also apply to one process; a run can resume only with the same.
func ofAll(sets []string) []string {
	return slices.DeleteFunc([]string{wide, large, moe, muon}, func(s string) bool { return !slices.Contains(sets, s) })
}

// TestGridTable compares every grid of the table, with one process per rank, with one process of one rank over 50 steps. The
// losses are close; every schedule and ZeRO give the same bits again; and the run resumes with the table's next grid. It
// prints how close the losses are.
func TestGridTable(t *testing.T) {
	if os.Getenv("TROUPE_GRIDS") == "" {
		t.Skip("it takes minutes; make check-grids runs it")
	}
	const steps, tolerance = 50, 1e-5
	groups := make(map[int]*group)
	over := func(ranks int) *group {
		if groups[ranks] == nil {
			groups[ranks] = newGroup(t, new(group))
			groups[ranks].join(t, workers(ranks)...)
		}
		return groups[ranks]
	}
	for _, family := range slices.Sorted(maps.Keys(families)) {
		base := append(slices.Clone(families[family]), fmt.Sprintf("run.steps=%d", steps), "run.eval_every=25", "run.checkpoint_every=25")
		if family == "gpt2, tied" {
			base = append(base, "model.kv_heads=4")
		}
		folder := t.TempDir()
		ones := make(map[string]string)
		for _, sets := range [][]string{nil, {wide}, {wide, large}, {moe}, {wide, moe}, {muon}} {
			kind := strings.Join(sets, " ")
			ones[kind] = filepath.Join(folder, fmt.Sprint("one ", len(ones)))
			trainHere(t, command{Config: smallRun, Sets: keys(t, ones[kind], base, sets)})
		}
		outs, kept := make(map[string]string), t.TempDir()
		for i, c := range gridTable {
			t.Run(family+", "+c.name, func(t *testing.T) {
				run := func(out string, from int, more ...[]string) {
					sets := keys(t, out, slices.Concat(more...))
					cfg, err := config.Parse("test.toml", []byte(smallRun), sets, nil)
					if err != nil {
						t.Fatal(err)
					}
					n := cfg.Ranks()
					if busy := over(n).train(t, command{Config: smallRun, Sets: sets, FromStep: from, Workers: n}); busy != n {
						t.Errorf("%d workers had ranks, want %d", busy, n)
					}
				}
				kind := strings.Join(ofAll(c.sets), " ")
				one := ones[kind]
				outs[c.name] = filepath.Join(kept, fmt.Sprint(i))
				out, again := outs[c.name], filepath.Join(t.TempDir(), "again")
				run(out, 0, base, c.sets)
				apart := lossDifference(t, one, out)
				run(again, 0, base, c.sets)
				sameRun(t, out, again, steps)
				for _, schedule := range c.schedules {
					other := filepath.Join(t.TempDir(), schedule)
					run(other, 0, base, c.sets, []string{"pipeline.schedule=" + schedule})
					sameRun(t, out, other, steps)
				}
				if c.plain != "" {
					sameRun(t, outs[c.plain], out, steps)
				}
				next := (i + 1) % len(gridTable)
				for strings.Join(ofAll(gridTable[next].sets), " ") != kind {
					next = (next + 1) % len(gridTable)
				}
				run(again, 25, base, gridTable[next].sets)
				resumed := lossDifference(t, one, again)
				t.Logf("%s: %.1e apart, resumed under the next grid %.1e; the same bits with %s", c.name, apart, resumed,
					cmp.Or(strings.Join(slices.Concat(c.schedules, nonEmpty(c.plain)), ", "), "itself"))
				if max(apart, resumed) > tolerance {
					t.Errorf("losses are %.2g of themselves apart, and %.2g resumed under the next grid; want at most %.0e", apart, resumed, tolerance)
				}
			})
		}
	}
}

// nonEmpty drops empty values.
func nonEmpty(all ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// lossDifference returns the relative difference of two runs' losses.
func lossDifference(t testing.TB, want, got string) (most float64) {
	t.Helper()
	read := func(out string) []telemetry.Record {
		all, err := telemetry.Read(filepath.Join(out, "metrics.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	a, b := read(want), read(got)
	if len(a) != len(b) || len(a) == 0 {
		t.Fatalf("%d lines of figures, want %d", len(b), len(a))
	}
	for i := range a {
		for _, v := range [][2]*float64{{a[i].Loss, b[i].Loss}, {a[i].ValLoss, b[i].ValLoss}} {
			if v[0] != nil && v[1] != nil {
				most = max(most, math.Abs(*v[0]-*v[1])/math.Abs(*v[0]))
			}
		}
	}
	return most
}
