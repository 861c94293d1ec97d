package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// TestTransfers: the types and shapes that a rank is said to send are those of the tensors that its passes make, and what it is said
// to receive is what the neighbour is said to send, where both have tensor groups of one size.
func TestTransfers(t *testing.T) {
	for _, sets := range []string{
		"pipeline.stages=1",
		"pipeline.stages=2",
		"pipeline.stages=2 pipeline.chunks=2 batch.microbatch=3",
		"pipeline.stages=2 pipeline.schedule=zb-v",
		"pipeline.stages=2 pipeline.schedule=u-shape",
		"pipeline.stages=2 pipeline.wire_dtype=bfloat16",
		"pipeline.stages=2 parallel.tensor=2",
		"pipeline.stages=2 parallel.tensor=2 parallel.sequence=true",
		"pipeline.stages=2 parallel.context=4",
		"pipeline.stages=2 parallel.context=2 parallel.tensor=2 parallel.sequence=true",
		"pipeline.stages=4 model.mtp_layers=1 model.tie_embeddings=false pipeline.layout=Ett|tt|m|L",
		`pipeline.stages=2 model.freeze=["embed","0-3"] model.tie_embeddings=false`,
	} {
		p, err := gridPlan(t, strings.Fields(sets)...)
		if err != nil {
			t.Errorf("%s: %v", sets, err)
			continue
		}
		checkTransfers(t, sets, p)
	}
	for _, sets := range []string{"pipeline.stages=2", "pipeline.stages=3 pipeline.layout=E|tt|ttL",
		"pipeline.stages=3 pipeline.layout=Ett||ttL", "pipeline.stages=2 pipeline.schedule=zb-v device.dtype=bfloat16"} {
		p, err := passingPlan(t, strings.Fields(sets)...)
		if err != nil {
			t.Errorf("%s: %v", sets, err)
			continue
		}
		checkTransfers(t, sets, p)
	}
}

// passingPlan is a plan of a model whose edges differ in width.
func passingPlan(t *testing.T, sets ...string) (*Plan, error) {
	t.Helper()
	cfg, err := config.Parse("passing.toml", []byte(`
run = {steps = 2}
model = {family = "gemma4_text", hidden = 32, context = 8, heads = 4, kv_heads = 2, layers = 4, window = 3}
data = {train = ["testdata/troupe.txt"]}
batch = {sequences = 12, microbatch = 1}
`), append([]string{"run.out=" + t.TempDir()}, sets...), nil)
	if err != nil {
		t.Fatal(err)
	}
	return New(cfg, gridVocab, stages.Config{Family: stages.Gemma4, Context: 8, Full: []int{1, 3}, LayerInput: 7, SharedKV: 2,
		WideShared: true})
}

// TestEdgeBytes: messages have the mean width of a model's edges, and groups that cannot share such layers are refused.
func TestEdgeBytes(t *testing.T) {
	p, err := passingPlan(t, "pipeline.stages=3", "pipeline.layout=Et|t|ttL")
	if err != nil {
		t.Fatal(err)
	}
	// Before layer 1 there are the inputs of 3 layers and the keys and values of layer 0, before layer 2 the inputs of 2 layers and the
	// keys and values of both kinds.
	if want := int64(4 * 8 * ((32 + 3*7 + 2*16 + 32 + 2*7 + 2*2*16) / 2)); p.EdgeBytes() != want {
		t.Errorf("a message has %d bytes, want %d", p.EdgeBytes(), want)
	}
	for key, sets := range map[string]string{"parallel.tensor": "parallel.tensor=2", "parallel.context": "parallel.context=2"} {
		if _, err := passingPlan(t, sets); err == nil || !strings.Contains(err.Error(), key) ||
			!strings.Contains(err.Error(), "inputs of each layer and layers that share keys and values") {
			t.Errorf("%s: %v", sets, err)
		}
	}
}

func checkTransfers(t *testing.T, sets string, p *Plan) {
	t.Helper()
	sent := make(map[string][]stages.Shape)
	for rank, row := range p.table.Ranks {
		dry := tensorops.NewDryStream()
		st, err := stages.NewStage(p.model, dry, p.chunks[rank], p.dryOptions(rank, place{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := st.DryLoad(); err != nil {
			t.Fatal(err)
		}
		d := p.newDry(st, rank, p.table, p.microbatches())
		for _, a := range row {
			l := dry.NewList()
			out := d.pass(l, a)
			if a.Type != scheduler.W {
				sent[fmt.Sprint(a.Chunk, a.Type == scheduler.F)] = shapesOfTensors(out)
			}
			for _, x := range out {
				l.Free(x)
			}
			if err := tensorops.Run(dry, l); err != nil {
				t.Fatal(err)
			}
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
	by := make([]Transfers, p.table.NumChunks)
	for rank := range p.table.Ranks {
		all, err := p.Transfers(rank)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range all {
			by[x.Chunk] = x
		}
	}
	for c, x := range by {
		for forward, says := range map[bool][]stages.Shape{true: x.SendForward, false: x.SendBackward} {
			if made := sent[fmt.Sprint(c, forward)]; !sameShapes(made, says) {
				t.Errorf("%s: chunk %d, forward %v: it sends %v, and is said to send %v", sets, c, forward, made, says)
			}
		}
		if x.Chunk != c {
			t.Errorf("%s: chunk %d is missing", sets, c)
		}
		if c > 0 && (!sameShapes(x.RecvForward, by[c-1].SendForward) || !sameShapes(x.SendBackward, by[c-1].RecvBackward)) {
			t.Errorf("%s: from chunk %d to %d: %v and %v", sets, c-1, c, by[c-1], x)
		}
	}
	if first, last := by[0], by[len(by)-1]; first.RecvForward != nil || first.SendBackward != nil || last.SendForward != nil ||
		last.RecvBackward != nil {
		t.Errorf("%s: the ends have %v and %v", sets, first, last)
	}
}

func shapesOfTensors(ts []tensorops.Tensor) (all []stages.Shape) {
	for _, x := range ts {
		if x.Valid() {
			all = append(all, stages.Shape{DType: x.DType(), Dims: x.Shape()})
		}
	}
	return all
}

func sameShapes(a, b []stages.Shape) bool {
	return slices.EqualFunc(a, b, func(x, y stages.Shape) bool { return x.DType == y.DType && slices.Equal(x.Dims, y.Dims) })
}
