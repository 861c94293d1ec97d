package cuda

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// ErrUnavailable: this machine or this build has no CUDA, or not the requested device. The error
// says what was searched.
var ErrUnavailable = driver.ErrUnavailable

// panicError describes a panic with the place it came from.
func panicError(v any) error {
	if err, ok := v.(error); ok {
		if _, isRuntime := v.(runtime.Error); !isRuntime {
			return err
		}
	}
	return fmt.Errorf("panic: %v\n%s", v, debug.Stack())
}

// lookup is what an operation looks up by ids that a vocabulary may not have.
type lookup struct {
	ids        tensorops.Tensor
	vocabulary int
}

// lookupOf returns what an operation looks up; false if it has no ids.
func lookupOf(op *tensorops.Op) (lookup, bool) {
	switch op.Kind {
	case tensorops.KindEmbed:
		a := op.Embed()
		return lookup{a.IDs, a.Weight.Rows()}, true
	case tensorops.KindEmbedGrad:
		a := op.EmbedGrad()
		return lookup{a.IDs, a.Grad.Rows()}, true
	case tensorops.KindCrossEntropy:
		a := op.CrossEntropy()
		return lookup{a.Targets, a.Logits.Cols()}, true
	case tensorops.KindCrossEntropyPart:
		a := op.CrossEntropyPart()
		return lookup{a.Targets, a.Vocab}, true
	}
	return lookup{}, false
}

// badID is the error of an id that the vocabulary does not have.
func (l lookup) badID(row int, id int32) error {
	return fmt.Errorf("%w: row %d holds token %d, but the vocabulary has %d tokens", tensorops.ErrToken, row, id, l.vocabulary)
}
