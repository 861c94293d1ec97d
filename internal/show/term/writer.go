package term

import (
	"io"
	"sync"
	"unicode/utf8"
)

// Writer edits text on its way to another writer. It joins characters that are split between calls of Write, and
// drops an incomplete character at the end. It is safe for concurrent use.
type Writer struct {
	w    io.Writer
	edit func(string) string

	mu   sync.Mutex
	held []byte // the first bytes of an incomplete character
}

// NewWriter returns a Writer. With words.Harmless as edit, the text cannot control a terminal.
func NewWriter(w io.Writer, edit func(string) string) *Writer { return &Writer{w: w, edit: edit} }

// Write writes p except an incomplete character at its end, which it keeps for the next call.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := append(w.held, p...)
	whole := len(text)
	for i := len(text) - 1; i >= max(0, len(text)-utf8.UTFMax); i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				whole = i
			}
			break
		}
	}
	w.held = append([]byte(nil), text[whole:]...)
	if whole == 0 {
		return len(p), nil
	}
	if _, err := io.WriteString(w.w, w.edit(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(p), nil
}
