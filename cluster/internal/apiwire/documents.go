package apiwire

import (
	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Limits of an example of documents that is sent.
const (
	limitPieces     = 16
	limitPieceBytes = 2 << 10
)

func packDocuments(d *troupe.Documents) *wire.Documents {
	if d == nil {
		return nil
	}
	w := &wire.Documents{Train: int64(d.Train), Val: int64(d.Val), TrainLearned: d.TrainLearned, ValLearned: d.ValLearned,
		Context: int64(d.Context), Longest: int64(d.Longest), Cut: int64(d.Cut), Dropped: int64(d.Dropped),
		Template: words.Cut(d.Template, limitPieceBytes), File: words.Cut(d.File, limitPieceBytes), Row: int64(d.Row)}
	for _, p := range d.Example[:min(len(d.Example), limitPieces)] {
		w.Example = append(w.Example, &wire.Piece{Text: words.Cut(p.Text, limitPieceBytes), Learned: p.Learned})
	}
	return w
}

func unpackDocuments(w *wire.Documents) *troupe.Documents {
	if w == nil {
		return nil
	}
	d := &troupe.Documents{Train: int(w.GetTrain()), Val: int(w.GetVal()), TrainLearned: w.GetTrainLearned(), ValLearned: w.GetValLearned(),
		Context: int(w.GetContext()), Longest: int(w.GetLongest()), Cut: int(w.GetCut()), Dropped: int(w.GetDropped()),
		Template: w.GetTemplate(), File: w.GetFile(), Row: int(w.GetRow())}
	for _, p := range w.GetExample() {
		d.Example = append(d.Example, troupe.Piece{Text: p.GetText(), Learned: p.GetLearned()})
	}
	return d
}

func packPacking(p *troupe.Packing) *wire.Packing {
	if p == nil {
		return nil
	}
	return &wire.Packing{Mode: words.Cut(p.Mode, limitPieceBytes), Sequences: p.Sequences, Documents: p.Documents, FullPct: p.FullPct,
		Targets: p.Targets}
}

func unpackPacking(w *wire.Packing) *troupe.Packing {
	if w == nil {
		return nil
	}
	return &troupe.Packing{Mode: w.GetMode(), Sequences: w.GetSequences(), Documents: w.GetDocuments(), FullPct: w.GetFullPct(),
		Targets: w.GetTargets()}
}
