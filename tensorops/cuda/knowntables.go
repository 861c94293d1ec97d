package cuda

import (
	"slices"

	"github.com/troupe-ml/troupe/tensorops"
)

// knownTables are the tables of tensorops.SourceTable that the host has seen: AllGather, which makes them, goes through the host.
// So the host knows how many rows an AllToAllV exchanges, and copies only those. Other tables are fetched when a list needs them.
type knownTables struct{ known[[]int32] }

// crossed takes note of a table that a collective has brought to the host: its result, or the table of its exchange of rows.
func (k *knownTables) crossed(a tensorops.CollectiveArgs, result, table tensorops.Tensor) {
	switch {
	case a.What == tensorops.AllGather && a.Dst.DType() == tensorops.Int32:
		k.keep(a.Dst, result)
	case a.What == tensorops.AllToAllV:
		k.keep(a.Table, table)
	}
}

// keep takes note of the numbers of a tensor of the device, which is on the host, too.
func (k *knownTables) keep(table, onHost tensorops.Tensor) {
	if _, ok := k.numbers(table); !ok && table.Len() <= limitTableNumbers {
		k.note(extentOf(table), slices.Clone(tensorops.Elements[int32](onHost)), limitKnownTables)
	}
}

// numbers are those of a table, if they are known.
func (k *knownTables) numbers(table tensorops.Tensor) ([]int32, bool) {
	all, ok := k.of(extentOf(table))
	return all, ok && len(all) == table.Len()
}

// passed takes note of operations that are about to be launched.
func (k *knownTables) passed(ops []tensorops.Op) {
	for i := range ops {
		if len(k.all) == 0 {
			return
		}
		k.passedBut(&ops[i], tableOf(&ops[i]))
	}
}

// tableOf is the table that an operation reads; invalid: none.
func tableOf(o *tensorops.Op) tensorops.Tensor {
	switch o.Kind {
	case tensorops.KindSourceOffsets:
		return o.SourceOffsets().Table
	case tensorops.KindCollective:
		return o.Collective().Table
	}
	return tensorops.Tensor{}
}
