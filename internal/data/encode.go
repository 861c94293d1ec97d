package data

import (
	"iter"
	"runtime"
	"sync"
)

// pieceBytes is how much text is encoded at a time, if it may be cut. It limits the memory for the
// ids as int32.
const pieceBytes = 1 << 17

// TextPieces yields the pieces in which a text is encoded.
func TextPieces(enc Encoder, text []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(text) > 0 {
			piece := firstPiece(enc, text)
			if !yield(piece) {
				return
			}
			text = text[len(piece):]
		}
	}
}

// firstPiece returns the start of a text that is not empty, cut where allowed. If a text has no
// such place nearby, the search continues in steps of doubled size.
func firstPiece(enc Encoder, text []byte) []byte {
	for most := pieceBytes; most < len(text); most *= 2 {
		if at := enc.Cut(text, most); at > 0 {
			return text[:at]
		}
	}
	return text
}

// EncodeAll encodes the texts that next returns, until it returns false, on all cores. It passes
// each text with its ids to take, in order; take may use the ids only during the call. take also
// gets errors of encoding; an error that it returns ends everything. next and take are never called
// at the same time, and take is called on the caller's goroutine. At most two texts per core are in
// progress.
func EncodeAll(enc Encoder, next func() ([]byte, bool), take func(text []byte, ids []int32, err error) error) error {
	type job struct {
		text []byte
		ids  []int32
		err  error
		done chan struct{}
	}
	cores := runtime.GOMAXPROCS(0)
	most := 2 * cores
	work := make(chan *job, most)
	var workers sync.WaitGroup
	for range cores {
		workers.Go(func() {
			for j := range work {
				j.ids, j.err = enc.AppendEncode(j.ids[:0], j.text)
				j.done <- struct{}{}
			}
		})
	}
	defer func() { // after an early return no goroutine may use what the caller owns
		close(work)
		workers.Wait()
	}()
	var under, free []*job // under is in order
	for more := true; more || len(under) > 0; {
		if more && len(under) < most {
			var text []byte
			if text, more = next(); !more {
				continue
			}
			var j *job
			if n := len(free); n > 0 {
				j, free = free[n-1], free[:n-1]
			} else {
				j = &job{done: make(chan struct{}, 1)}
			}
			j.text = text
			under = append(under, j)
			work <- j
			continue
		}
		j := under[0]
		<-j.done
		under = under[1:]
		if err := take(j.text, j.ids, j.err); err != nil {
			return err
		}
		free = append(free, j)
	}
	return nil
}
