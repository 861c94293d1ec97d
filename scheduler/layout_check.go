package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LayoutSpec is what a layout has to fit.
type LayoutSpec struct {
	Layers    int // decoder layers
	MTPLayers int // multi-token-prediction layers
	Ranks     int
	Chunks    int // the most chunks on any rank
	Placement Placement
	Symbols   string
}

// Validate says whether the layout covers the model once, in an order that can
// be computed, on the chunks that there are.
func (l *Layout) Validate(s LayoutSpec) error {
	if s.Symbols != "" {
		return nil // stand-in
	}
	chunks, err := s.Placement.Chunks(s.Ranks, s.Chunks)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if len(l.Chunks) != chunks {
		return fmt.Errorf("%w: it has %d chunks, but %d ranks with %d each (placement %s) make %d",
			ErrLayout, len(l.Chunks), s.Ranks, s.Chunks, s.Placement, chunks)
	}
	if err := l.checkSymbols(s); err != nil {
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
		return errors.New("it must begin with E: chunk 0 takes the tokens in")
	case len(last) == 0 || last[len(last)-1] != SymbolLoss:
		return fmt.Errorf("it must end with L: the last chunk, %d, computes the loss", len(l.Chunks)-1)
	case count[SymbolLayer] != s.Layers:
		return fmt.Errorf("it has %d t, but the model has %d layers", count[SymbolLayer], s.Layers)
	case count[SymbolMTP] != s.MTPLayers:
		return fmt.Errorf("it has %d m, but the model has %d multi-token-prediction layers", count[SymbolMTP], s.MTPLayers)
	}
	return nil
}

// checkMTP holds the rules of multi-token prediction: its layers follow all
// decoder layers, together, at the end of a rank that doesn't also embed.
func (l *Layout) checkMTP(s LayoutSpec) error {
	home := -1
	for i, chunk := range l.Chunks {
		at := slices.Index(chunk, SymbolMTP)
		if t := lastIndex(chunk, SymbolLayer); t >= 0 && (home >= 0 || at >= 0 && t > at) {
			return fmt.Errorf("chunk %d holds a t after the first m: all m come after all t", i)
		}
		if at < 0 {
			continue
		}
		if home >= 0 {
			return fmt.Errorf("chunks %d and %d both hold m: all m stand in one chunk", home, i)
		}
		home = i
	}
	if home < 0 || s.Ranks == 1 { // one rank holds everything
		return nil
	}
	rank := s.Placement.Rank(home, s.Ranks)
	if rank == 0 {
		return fmt.Errorf("chunk %d, on rank 0, holds m: rank 0 holds no m", home)
	}
	for later := home + 1; later < len(l.Chunks); later++ {
		if s.Placement.Rank(later, s.Ranks) == rank {
			return fmt.Errorf("chunk %d, on rank %d, holds m, but chunk %d follows on that rank: m stand in a rank's last chunk",
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
