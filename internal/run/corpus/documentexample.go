package corpus

import (
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// Limits of a document that is shown.
const (
	maxPieces      = 12
	maxPieceTokens = 400
)

// pieces divides the text of a document into the parts that are learned and those that are not. The first token is not a target.
func pieces(d data.Document, tok tokenizer.Tokenizer) (all []event.Piece) {
	is := func(i int) bool { return i > 0 && d.Learn[i] }
	for from := 0; from < len(d.IDs) && len(all) < maxPieces; {
		to := from + 1
		for to < len(d.IDs) && is(to) == is(from) {
			to++
		}
		text := string(tok.Decode(d.IDs[from:min(to, from+maxPieceTokens)]))
		if to-from > maxPieceTokens {
			text += "…"
		}
		all = append(all, event.Piece{Text: text, Learned: is(from)})
		from = to
	}
	return all
}
