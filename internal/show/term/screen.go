package term

import (
	"io"
	"os"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"

	"golang.org/x/term"
)

// clearLine moves to the first column and clears the line.
const clearLine = "\r\x1b[K"

// lineUp moves to the row above.
const lineUp = "\x1b[A"

// Screen writes lines to two streams and keeps a progress bar below them. It is for one goroutine. It ignores write
// errors.
type Screen struct {
	out, err io.Writer
	width    func() int // nil: no terminal, so no bar

	bar   Bar
	shown bool
	drawn int // columns of the bar as drawn
}

// NewScreen returns a screen of two streams. width returns the current number of columns of the terminal; nil: out is
// not a terminal.
func NewScreen(out, err io.Writer, width func() int) *Screen {
	return &Screen{out: out, err: err, width: width}
}

// Width returns the function that NewScreen needs for a stream; nil: the stream is not a terminal, or one that can't
// redraw a line.
func Width(out io.Writer) func() int {
	if !IsTerminal(out) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	f := out.(*os.File)
	return func() int {
		width, _, err := term.GetSize(int(f.Fd()))
		if err != nil || width <= 0 {
			return 80 // a terminal of unknown size, such as a serial line
		}
		return width
	}
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// HasBar reports whether the screen shows bars.
func (s *Screen) HasBar() bool { return s.width != nil }

// Line writes a line to the output, without control characters.
func (s *Screen) Line(text string) { s.above(s.out, text) }

// Notice writes a line to the error stream, without control characters.
func (s *Screen) Notice(text string) { s.above(s.err, text) }

// above writes a line in place of the bar, and the bar below it.
func (s *Screen) above(w io.Writer, text string) {
	shown := s.shown
	s.Clear()
	s.write(w, words.Harmless(text)+"\n")
	if shown {
		s.Draw(s.bar)
	}
}

// Draw shows the bar, or redraws it.
func (s *Screen) Draw(b Bar) {
	if s.width == nil {
		return
	}
	clear := s.clearing()
	s.bar, s.shown = b, true
	// The last column stays free: some terminals wrap as soon as it is used.
	line := b.Render(s.width() - 1)
	s.drawn = len(line)
	s.write(s.out, clear+line)
}

// Clear removes the bar.
func (s *Screen) Clear() {
	if s.shown {
		clear := s.clearing()
		s.shown = false
		s.write(s.out, clear)
	}
}

// clearing returns what clears the bar's row, and further rows if the terminal was made narrower and has wrapped the bar.
func (s *Screen) clearing() string {
	clear := clearLine
	if width := s.width(); s.shown && width > 0 {
		clear += strings.Repeat(lineUp+clearLine, max(0, s.drawn-1)/width)
	}
	return clear
}

func (s *Screen) write(w io.Writer, text string) {
	_, _ = io.WriteString(w, text)
}
