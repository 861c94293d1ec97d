package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
)

// LayoutSpec describes the model and the pipeline that a layout must fit.
type LayoutSpec struct {
	Layers    int // decoder layers
	MTPLayers int // multi-token-prediction layers
	Ranks     int
	Chunks    int // the largest number of chunks on any rank
	Placement Placement
	// Symbols lists, in order, the parts of a model that is more than an embedding, decoder layers
	// and a loss: EtttEtttL for an encoder and a decoder. If Symbols is set, Layers and MTPLayers
	// are ignored. "" means E, Layers times t, MTPLayers times m, L.
	Symbols string
}

// Validate checks that the layout covers the model once, in an order that can be computed, on the
// given chunks. The error is ErrLayout.
func (l *Layout) Validate(s LayoutSpec) error {
	chunks, err := s.Placement.Chunks(s.Ranks, s.Chunks)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if len(l.Chunks) != chunks {
		return fmt.Errorf("%w: it has %s, but %s with %d each (placement %s) make %d",
			ErrLayout, words.Plural(len(l.Chunks), "chunk"), words.Plural(s.Ranks, "rank"), s.Chunks, s.Placement, chunks)
	}
	check := l.checkSymbols
	if s.Symbols != "" {
		check = l.checkSequence
	}
	if err := check(s); err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if err := l.checkMTP(s); err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	return nil
}

func (l *Layout) checkSymbols(s LayoutSpec) error {
	count := map[Symbol]int{}
	for i, chunk := range l.Chunks {
		for _, symbol := range chunk {
			if strings.IndexByte(layoutSymbols, byte(symbol)) < 0 {
				return fmt.Errorf("chunk %d holds the unknown symbol %q", i, symbol)
			}
			count[symbol]++
		}
	}
	first, last := l.Chunks[0], l.Chunks[len(l.Chunks)-1]
	switch {
	case count[SymbolEmbedding] != 1:
		return fmt.Errorf("it has %d E, want exactly 1", count[SymbolEmbedding])
	case count[SymbolLoss] != 1:
		return fmt.Errorf("it has %d L, want exactly 1", count[SymbolLoss])
	case len(first) == 0 || first[0] != SymbolEmbedding:
		return errors.New("it must begin with E: chunk 0 reads the tokens")
	case len(last) == 0 || last[len(last)-1] != SymbolLoss:
		return fmt.Errorf("it must end with L: the last chunk, %d, computes the loss", len(l.Chunks)-1)
	case count[SymbolLayer] != s.Layers:
		return fmt.Errorf("it has %d t, but the model has %d layers", count[SymbolLayer], s.Layers)
	case count[SymbolMTP] != s.MTPLayers:
		return fmt.Errorf("it has %d m, but the model has %d multi-token-prediction layers", count[SymbolMTP], s.MTPLayers)
	}
	return nil
}

// checkSequence checks that the chunks hold the model's parts in order and that the first and the
// last chunk are not empty: data enter at one, and gradients start at the other.
func (l *Layout) checkSequence(s LayoutSpec) error {
	if err := checkSequence(s.Symbols); err != nil {
		return err
	}
	last := len(l.Chunks) - 1
	at := 0 // index in the model
	for i, chunk := range l.Chunks {
		for _, symbol := range chunk {
			switch {
			case strings.IndexByte(layoutSymbols, byte(symbol)) < 0:
				return fmt.Errorf("chunk %d holds the unknown symbol %q", i, symbol)
			case at == len(s.Symbols):
				return fmt.Errorf("chunk %d holds %c after the model's last part: the model has %d parts, %s", i, symbol, at, quoteSequence(s.Symbols))
			case byte(symbol) != s.Symbols[at]:
				return fmt.Errorf("chunk %d holds %c where the model has %c, as part %d of %d: its parts are %s",
					i, symbol, s.Symbols[at], at+1, len(s.Symbols), quoteSequence(s.Symbols))
			}
			at++
		}
	}
	switch {
	case at < len(s.Symbols):
		return fmt.Errorf("it ends with chunk %d after %d parts, but the model continues with %c: the model has %d parts, %s",
			last, at, s.Symbols[at], len(s.Symbols), quoteSequence(s.Symbols))
	case len(l.Chunks[0]) == 0:
		return fmt.Errorf("chunk 0 is empty: it must hold the model's first part, %c, which reads the data", s.Symbols[0])
	case len(l.Chunks[last]) == 0:
		return fmt.Errorf("chunk %d, the last, is empty: it must hold the model's last part, %c", last, s.Symbols[at-1])
	}
	return nil
}

// checkSequence checks a model's parts.
func checkSequence(symbols string) error {
	if n := len(symbols); n < 1 || n > MaxLayoutSymbols {
		return fmt.Errorf("the model has %d parts: want 1 to %d", n, MaxLayoutSymbols)
	}
	for i := range len(symbols) {
		if strings.IndexByte(layoutSymbols, symbols[i]) < 0 {
			return fmt.Errorf("part %d of the model has the unknown symbol %q: want one of E t m L", i+1, symbols[i])
		}
	}
	return nil
}

// quoteSequence writes a model's parts as a layout does, cut to the length that an error may
// repeat.
func quoteSequence(symbols string) string { return shorten(chunkString([]Symbol(symbols))) }

// checkMTP checks the rules of multi-token prediction: its layers stand together after all decoder
// layers, at the end of a rank that doesn't also hold the embedding.
func (l *Layout) checkMTP(s LayoutSpec) error {
	home := -1
	for i, chunk := range l.Chunks {
		at := slices.Index(chunk, SymbolMTP)
		if t := lastIndex(chunk, SymbolLayer); t >= 0 && (home >= 0 || at >= 0 && t > at) {
			return fmt.Errorf("chunk %d holds a t after the first m: all m must follow all t", i)
		}
		if at < 0 {
			continue
		}
		if home >= 0 {
			return fmt.Errorf("chunks %d and %d both hold m: put all m into one chunk", home, i)
		}
		home = i
	}
	if home < 0 || s.Ranks == 1 { // one rank holds everything
		return nil
	}
	rank := s.Placement.Rank(home, s.Ranks)
	if rank == 0 {
		return fmt.Errorf("chunk %d, on rank 0, holds m: rank 0 cannot hold m, so move it to another rank", home)
	}
	for later := home + 1; later < len(l.Chunks); later++ {
		if s.Placement.Rank(later, s.Ranks) == rank {
			return fmt.Errorf("chunk %d, on rank %d, holds m, but chunk %d follows on that rank: m must stand in a rank's last chunk",
				home, rank, later)
		}
	}
	return nil
}

func lastIndex(chunk []Symbol, symbol Symbol) int {
	for i := len(chunk) - 1; i >= 0; i-- {
		if chunk[i] == symbol {
			return i
		}
	}
	return -1
}
