package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/scheduler"
)

// Trace holds the actions of one step with their times, rank by rank: a line of trace.jsonl. It includes the table,
// so that it can be read alone.
type Trace struct {
	Step     int    `json:"step"`
	Schedule string `json:"schedule"`
	// Table is the schedule's table as CSV: a row for each rank.
	Table string `json:"table"`
	// Skips are the edges between chunks that are not neighbors, each from one chunk to another; nil: there are none.
	Skips [][2]int `json:"skips,omitempty"`
	// MS holds the start and the end of each action in milliseconds since the first start, by rank and in the order
	// of the table.
	MS [][][2]float64 `json:"ms"`
	// ChunkFLOPs are the floating-point operations of each chunk's forward pass of a microbatch; an input gradient
	// and a weight gradient take as many each.
	ChunkFLOPs []float64 `json:"chunk_flops"`
	Threads    int       `json:"threads"` // threads of the device
	// Clocks are the clock corrections by rank, for ranks in other processes. nil: there are no such ranks; or an
	// earlier version wrote the trace, and times are those of each process's own clock.
	Clocks []Clock `json:"clocks,omitempty"`
}

// Clock is the clock correction of a rank in another process.
type Clock = scheduler.Clock

// UnmarshalJSON also reads traces of earlier versions, which call chunk_flops stage_flops.
func (t *Trace) UnmarshalJSON(text []byte) error {
	type plain Trace
	line := struct {
		*plain
		StageFLOPs []float64 `json:"stage_flops"`
	}{plain: (*plain)(t)}
	err := json.Unmarshal(text, &line)
	if t.ChunkFLOPs == nil {
		t.ChunkFLOPs = line.StageFLOPs
	}
	return err
}

// TraceOf returns the line of trace.jsonl for a step.
func TraceOf(s *scheduler.Step, chunkFLOPs []float64, threads int) Trace {
	t := Trace{Step: s.Number, Schedule: s.Table.Schedule, Table: s.Table.CSV(), MS: s.MS, ChunkFLOPs: chunkFLOPs, Threads: threads}
	t.Clocks = s.Clocks
	for _, skip := range s.Table.Skips {
		t.Skips = append(t.Skips, [2]int{skip.From, skip.To})
	}
	return t
}

// Measured returns the step of a trace after checking it: the table can run, each action has its times, each chunk
// its operations, and either all ranks or none have clocks. Errors name the file and the step.
func (t *Trace) Measured(file string) (*scheduler.Step, error) {
	skips := make([]scheduler.Skip, len(t.Skips))
	for i, s := range t.Skips {
		skips[i] = scheduler.Skip{From: s[0], To: s[1]}
	}
	table, err := scheduler.ReadCSV(fmt.Sprintf("%s, the table of step %d", file, t.Step), t.Table, skips...)
	if err != nil {
		return nil, err
	}
	table.Schedule = t.Schedule
	s := &scheduler.Step{Number: t.Step, Table: table, MS: t.MS, Clocks: t.Clocks}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s: step %d: %w", file, t.Step, err)
	}
	if n := len(t.ChunkFLOPs); n != table.NumChunks {
		return nil, fmt.Errorf("%s: step %d: chunk_flops has %d chunks, the table has %d", file, t.Step, n, table.NumChunks)
	}
	report, err := scheduler.Check(table)
	if err != nil {
		return nil, fmt.Errorf("%s: step %d: %w", file, t.Step, err)
	}
	s.Credits = &report.Credits
	return s, nil
}

// maxTraceBytes is the longest line of a trace.jsonl that is read: about ten million actions.
const maxTraceBytes = 1 << 29

// WriteTrace appends a trace to a file of a folder, and creates the file if it does not exist.
func WriteTrace(fsys folder.FS, name string, t Trace) (err error) {
	text, err := json.Marshal(t)
	if err != nil {
		return fmt.Errorf("trace of step %d: %w", t.Step, err)
	}
	f, err := fsys.Append(name)
	if err != nil {
		return fmt.Errorf("trace of step %d: %w", t.Step, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := wholeLines(f)
	if err == nil {
		err = f.Truncate(size) // removes the partial line that a crash left
	}
	if err == nil {
		if _, err = f.Write(append(text, '\n')); err != nil {
			err = errors.Join(err, f.Truncate(size)) // a partial line would damage the next one
		}
	}
	if err != nil {
		return fmt.Errorf("trace of step %d: %w", t.Step, err)
	}
	return nil
}

// wholeLines returns the size of a file without a partial last line.
func wholeLines(f folder.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	block := make([]byte, 1<<12)
	for end := info.Size(); end > 0; {
		part := block[:min(end, int64(len(block)))]
		if _, err := f.ReadAt(part, end-int64(len(part))); err != nil {
			return 0, err
		}
		end -= int64(len(part))
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return end + int64(i) + 1, nil
		}
	}
	return 0, nil
}

// ReadTrace returns the trace of a step, or the last one if step < 0, and all steps of the file. If a step has two
// traces, as after a resume, it returns the later one. It ignores a truncated last line, which a crash can leave.
func ReadTrace(path string, step int) (t Trace, steps []int, err error) {
	fsys, err := folder.Open(filepath.Dir(path))
	if err != nil {
		return t, nil, err
	}
	defer func() { _ = fsys.Close() }() // nothing was written
	f, err := fsys.Open(filepath.Base(path))
	if err != nil {
		return t, nil, err
	}
	defer func() { _ = f.Close() }()
	found := false
	in := bufio.NewReader(f)
	for row := 1; ; row++ {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		var next Trace
		if err == nil {
			err = json.Unmarshal(line, &next)
		}
		if err != nil {
			return t, nil, fmt.Errorf("%s: row %d: %w", path, row, err)
		}
		if len(steps) == 0 || steps[len(steps)-1] != next.Step {
			steps = append(steps, next.Step)
		}
		if step < 0 || next.Step == step {
			t, found = next, true
		}
	}
	switch {
	case len(steps) == 0:
		return t, nil, fmt.Errorf("%s has no trace", path)
	case !found:
		return t, steps, fmt.Errorf("%s has no trace of step %d: it has %d traces, from step %d to %d", path, step, len(steps), steps[0],
			steps[len(steps)-1])
	}
	return t, steps, nil
}

// readLine reads a line with its line break. io.ErrUnexpectedEOF: the last line has none.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxTraceBytes {
			return nil, fmt.Errorf("the line has more than %d bytes", maxTraceBytes)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}
