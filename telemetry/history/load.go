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

// place is how far a file has been read.
type place struct {
	offset int64 // of the first byte that belongs to no row
	rows   int
	last   []byte // the last row's line, with its end if it has one
}

// open says that the last row's line has no end yet.
func (p *place) open() bool { return len(p.last) > 0 && p.last[len(p.last)-1] != '\n' }

// block is what was read of some whole lines.
type block struct {
	table  *table
	lines  int
	last   []byte // the last row's line
	left   int    // bytes of a last line that lacks its end and is no record
	buffer []byte
	err    func(before int) error // nil: all lines are records; the rows before the block complete it
}

// load reads the rows of a file from a place up to size bytes, and returns the place behind them.
// Blocks are read one after the other and taken apart at the same time.
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
		if from.rows == b.lines && b.lines > 0 { // the first block: what is to come is like it
			whole.grow(int(min(float64(size-from.offset)/float64(len(b.buffer))*1.02*float64(b.lines), LimitRows)))
		}
	}
	if failed != nil {
		return nil, place{}, failed
	}
	return whole, from, nil
}

// input cuts a file into blocks of whole lines.
type input struct {
	file  folder.File
	block int   // the size of a block that no line is longer than
	at    int64 // what was read
	size  int64
	carry []byte // of a line that the last block did not end
}

func (in *input) ended() bool { return in.at == in.size && len(in.carry) == 0 }

// next reads a block. Only the last one, and one of a line that is too long, doesn't end with a line.
func (in *input) next(buffer []byte) ([]byte, error) {
	buffer = append(buffer[:0], in.carry...)
	in.carry = in.carry[:0]
	for room := in.block; ; room = 2 * len(buffer) {
		n := int(min(int64(max(room-len(buffer), 1)), in.size-in.at))
		buffer = slices.Grow(buffer, n)
		read, err := in.file.ReadAt(buffer[len(buffer):len(buffer)+n], in.at)
		if read < n {
			if err == nil || errors.Is(err, io.EOF) {
				err = fmt.Errorf("reading gave %d bytes where the system says there are %d: %w", in.at+int64(read), in.size, io.ErrUnexpectedEOF)
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

// parse reads the lines of a text; of the file's last one, the last line may lack its end.
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
		if err != nil && end < 0 && final { // a crash leaves it, or it is being written
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
