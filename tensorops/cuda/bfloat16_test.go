//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestUsesAreWhole: of each operation that has a launcher it is known what it does with
// bfloat16: with each of its operands, or by itself.
func TestUsesAreWhole(t *testing.T) {
	for _, kind := range tensorops.Kinds() {
		itself := slices.Contains(knowBFloat16, kind)
		if launchers[kind] == nil && joiners[kind] == nil {
			if itself || uses[kind] != nil {
				t.Errorf("%v has no launcher", kind)
			}
			continue
		}
		operands := strings.Count((&tensorops.Op{Kind: kind}).String(), "=none")
		if n := len(uses[kind]); itself && n != 0 || !itself && n != operands {
			t.Errorf("%v has %d operands; of %d it is known what is done with them, and that the launcher takes bfloat16: %v", kind, operands, n, itself)
		}
		if joiners[kind] != nil && !itself {
			t.Errorf("%v: what joins operations has to take bfloat16 itself", kind)
		}
		for i, u := range uses[kind] {
			if u < reads || u > changes {
				t.Errorf("%v, operand %d: use %d", kind, i, u)
			}
		}
	}
}
