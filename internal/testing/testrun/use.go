package testrun

import (
	"context"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe"
)

// Generate returns the generated text and its number of pieces.
func Generate(t *testing.T, o troupe.GenerateOptions) (text string, pieces int) {
	t.Helper()
	var b strings.Builder
	err := troupe.Generate(context.Background(), o, func(piece []byte) error {
		pieces++
		b.Write(piece)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), pieces
}
