package history

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/telemetry"
)

// place is the position up to which a file has been read.
type place struct {
	offset int64 // offset of the first byte after the rows
	rows   int
	last   []byte // the last row's line, with its line break if it has one
}

// open reports whether the last row's line has no line break yet.
func (p *place) open() bool { return len(p.last) > 0 && p.last[len(p.last)-1] != '\n' }

// block holds the rows of some complete lines.
type block struct {
	table  *table
	lines  int
	last   []byte // the last row's line
	left   int    // bytes of an invalid last line without a line break
	buffer []byte
	err    func(before int) error // nil: all lines are valid; before is the number of rows before the block
}

// load reads the rows of a file from a place up to size bytes, and returns the place after them. It reads blocks one
// after the other and parses them in parallel.
func load(f folder.File, from place, size int64, blockBytes int) (*table, place, error) {
	whole := newTable()
	readers := min(runtime.GOMAXPROCS(0), limitReaders)
	in := input{file: f, block: blockBytes, at: from.offset, size: size}
	var pending []chan *block
	var free [][]byte
	var failed error
	for {
		for failed == nil && len(pending) <= readers && !in.ended() {
			var buffer []byte
			if n := len(free); n > 0 {
				buffer, free = free[n-1], free[:n-1]
			}
			text, err := in.next(buffer)
			if err != nil {
				failed = err
				break
			}
			done := make(chan *block, 1)
			pending = append(pending, done)
			go func(final bool) { done <- parse(text, final) }(in.ended()) // ends with the block; all are awaited
		}
		if len(pending) == 0 {
			break
		}
		b := <-pending[0]
		pending = pending[1:]
		free = append(free, b.buffer)
		if failed != nil {
			continue
		}
		if b.err != nil {
			failed = b.err(from.rows)
			continue
		}
		if failed = whole.join(b.table); failed != nil {
			failed = telemetry.RowError(from.rows+b.lines, failed)
			continue
		}
		from.rows += b.lines
		if b.lines > 0 {
			from.last = b.last
		}
		from.offset += int64(len(b.buffer) - b.left)
		if from.rows == b.lines && b.lines > 0 { // the first block predicts the size of the rest
			whole.grow(int(min(float64(size-from.offset)/float64(len(b.buffer))*1.02*float64(b.lines), LimitRows)))
		}
	}
	if failed != nil {
		return nil, place{}, failed
	}
	return whole, from, nil
}

// input splits a file into blocks of complete lines.
type input struct {
	file  folder.File
	block int   // size of a block, unless a line is longer
	at    int64 // position
	size  int64
	carry []byte // the partial line after the last block
}

func (in *input) ended() bool { return in.at == in.size && len(in.carry) == 0 }

// next reads a block. It ends with a line break, except the last block and one with a line that is too long.
func (in *input) next(buffer []byte) ([]byte, error) {
	buffer = append(buffer[:0], in.carry...)
	in.carry = in.carry[:0]
	for room := in.block; ; room = 2 * len(buffer) {
		n := int(min(int64(max(room-len(buffer), 1)), in.size-in.at))
		buffer = slices.Grow(buffer, n)
		read, err := in.file.ReadAt(buffer[len(buffer):len(buffer)+n], in.at)
		if read < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = fmt.Errorf("the file ended at byte %d, its size is %d: %w", in.at+int64(read), in.size, io.ErrUnexpectedEOF)
			}
			return nil, folder.Unreadable(err)
		}
		in.at += int64(n)
		fresh := len(buffer)
		buffer = buffer[:fresh+n]
		if in.at == in.size {
			return buffer, nil
		}
		if end := bytes.LastIndexByte(buffer[fresh:], '\n'); end >= 0 {
			end += fresh + 1
			in.carry = append(in.carry, buffer[end:]...)
			return buffer[:end], nil
		}
		if len(buffer) >= telemetry.LimitLineBytes {
			return buffer, nil
		}
	}
}

// parse reads the lines of a text. In the final text the last line may have no line break.
func parse(text []byte, final bool) *block {
	b := &block{table: newTable(), buffer: text}
	b.table.expect(len(text) / (bytes.IndexByte(text, '\n') + 1 + leastLine))
	var last []byte // shares the buffer
	defer func() { b.last = bytes.Clone(last) }()
	var r row
	for rest := text; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		line := rest
		if end >= 0 {
			line = rest[:end+1]
		}
		rest = rest[len(line):]
		if row := b.lines + 1; len(bytes.TrimSuffix(line, []byte("\n"))) >= telemetry.LimitLineBytes {
			b.err = func(before int) error { return telemetry.LongRowError(before + row) }
			return b
		}
		whole := line
		if end < 0 {
			whole = append(bytes.Clone(line), '\n')
		}
		err := r.read(whole)
		if err != nil && end < 0 && final { // after a crash, or while it is being written
			b.left = len(line)
			return b
		}
		if err == nil {
			err = b.table.add(&r)
		}
		b.lines++
		if row := b.lines; err != nil {
			b.err = func(before int) error { return telemetry.RowError(before+row, err) }
			return b
		}
		last = line
	}
	return b
}
