package forecast

import (
	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/tensorops"
)

// lone is a member of a group whose others bring what it brings, at once. Numbers that follow are such as training
// has: of what memory happens to hold, products take many times as long where it is smaller than normal numbers.
type lone struct{ tensorops.DryGroup }

func loneGroup(_ grid.Dimension, members int) tensorops.Group {
	return lone{tensorops.DryGroup{Members: members}}
}

// Start makes the result before it returns. A sum is left as one member's part.
func (lone) Start(op *tensorops.Op, done func(error)) {
	if a := op.Collective(); a.What != tensorops.Barrier {
		repeat(tensorops.Bytes(a.Dst), tensorops.Bytes(a.Src))
	}
	done(nil)
}

// repeat fills dst with src as often as it fits. dst may begin where src does.
func repeat(dst, src []byte) {
	for len(src) > 0 && len(dst) > 0 {
		if &dst[0] == &src[0] {
			dst = dst[min(len(src), len(dst)):]
			continue
		}
		dst = dst[copy(dst, src):]
	}
}
