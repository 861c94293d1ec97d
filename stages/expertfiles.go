package stages

import "fmt"

// expertNames are the names of a layer's experts in files. In a run all experts have one parameter for each kind of matrix.
type expertNames struct {
	router, list, gate, up, down string
	bias                         string // of the router, without an end
	shared, sharedGate           string // the shared expert, whose parts have the names of the experts', and its gate
	// stacked says that files have the matrices of all experts in one tensor, by inputs, with the columns of gate and up by turns:
	// GPT-OSS. Otherwise they have a tensor for each expert, with its number between the name of the list and that of the matrix.
	stacked bool
	// The names that transformers 5 gives the router and the list when it does not write the original format; empty: the same.
	otherRouter, otherList string
}

// The ends of names of parameters, and the names of stacked tensors.
const (
	weightEnd  = ".weight"
	biasEnd    = ".bias"
	gateUpName = ".gate_up_proj"
	downName   = ".down_proj"
	stackBias  = "_bias"
)

// files says in which tensors files have a layer's experts.
func (n expertNames) files(f *expertFFN, at string, hidden int) {
	if n.stacked {
		n.stackedFiles(f, at, hidden)
		return
	}
	for name, u := range map[string]use{n.gate: f.gate, n.up: f.up, n.down: f.down} {
		u.param.Parts = make([]string, f.spec.count)
		for e := range u.param.Parts {
			u.param.Parts[e] = fmt.Sprintf("%s%s.%d.%s.weight", at, n.list, e, name)
		}
	}
	// Transformers 5 has the matrices of all experts in one tensor, that of gate before that of up. So does a file that it writes with
	// save_original_format=False.
	list, router, e, w := orOther(n.otherList, n.list), n.otherRouter, f.spec.count, f.spec.width
	gateUp := StoredPart{Name: at + list + gateUpName, Shape: []int{e, 2 * w, hidden}, Strides: []int{2 * w * hidden, hidden, 1}}
	f.gate.param.alsoIn(gateUp)
	gateUp.At = w * hidden
	f.up.param.alsoIn(gateUp)
	f.down.param.alsoIn(StoredPart{Name: at + list + downName, Shape: f.down.param.Whole})
	if router != "" {
		f.router.param.alsoIn(StoredPart{Name: at + router + weightEnd, Shape: f.router.param.Whole})
	}
}

func orOther(other, usual string) string {
	if other != "" {
		return other
	}
	return usual
}

// stackedFiles is files for GPT-OSS: gate_up_proj is [E, C, 2F], down_proj [E, F, C]. Its published files have the transposed matrices, in
// MXFP4.
func (n expertNames) stackedFiles(f *expertFFN, at string, hidden int) {
	e, w, gateUp, down := f.spec.count, f.spec.width, at+n.list+gateUpName, at+n.list+downName
	for i, u := range []use{f.gate, f.up} {
		u.param.spread(gateUp, []int{e, hidden, 2 * w}, i, hidden*2*w, 2, 2*w)
		rows := []int{2 * w * hidden, 2 * hidden, 1}
		u.param.alsoIn(StoredPart{Name: gateUp, Shape: []int{e, 2 * w, hidden}, At: i * hidden, Strides: rows, MXFP4: true})
	}
	f.down.param.spread(down, []int{e, w, hidden}, 0, w*hidden, 1, hidden)
	f.down.param.alsoIn(StoredPart{Name: down, Shape: []int{e, hidden, w}, MXFP4: true})
	if b := f.biases; b != nil {
		for i, u := range []use{b.gate, b.up} {
			u.param.spread(gateUp+stackBias, []int{e, 2 * w}, i, 2*w, 2)
		}
		b.down.param.spread(down+stackBias, []int{e, hidden}, 0, hidden, 1)
	}
}
