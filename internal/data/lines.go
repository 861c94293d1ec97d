package data

import (
	"bytes"
	"fmt"
)

// MaxLineBytes is the longest line that Lines accepts: a longer one shows that the file is not
// text.
const MaxLineBytes = 64 << 20

// Lines calls line with every line of the files that is not blank, without its line end, and with its
// place: rows count from 1. The text is not a copy. An error of line ends it, and is returned as it is.
func (t *Text) Lines(line func(file string, row int, text []byte) error) error {
	for i := range t.starts {
		at, end := t.span(i)
		for row := 1; at < end; row++ {
			next := end
			if n := bytes.IndexByte(t.bytes[at:end], '\n'); n >= 0 {
				next = at + n + 1
			}
			if next-at > MaxLineBytes {
				return fmt.Errorf("%s, row %d: it has %d bytes; the limit is %d", plain(t.files[i]), row, next-at, MaxLineBytes)
			}
			if text := bytes.TrimRight(t.bytes[at:next], "\r\n"); len(bytes.TrimSpace(text)) > 0 {
				if err := line(t.files[i], row, text); err != nil {
					return err
				}
			}
			at = next
		}
	}
	return nil
}
