package samples

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/tensorops"
)

// jsonTable reads files of JSON lines into one table: one object on each line, whose keys are
// fields.
type jsonTable struct {
	lineBytes int
	scale     float64
	memory    *memory
	labels    *labels
	table     *table
	keys      map[string]*jsonColumn
}

type jsonColumn struct {
	*column
	label, scaled bool
}

func openJSONL(o Options) (*table, error) { return openJSONLUpTo(o, limitRowBytes) }

// openJSONLUpTo is openJSONL with a limit on the length of a line.
func openJSONLUpTo(o Options, lineBytes int) (*table, error) {
	j := &jsonTable{lineBytes: lineBytes, scale: orElse(o.Scale, 1), memory: newMemory(), labels: newLabels(o), table: &table{settled: o},
		keys: make(map[string]*jsonColumn)}
	features := o.Features
	if len(features) == 0 {
		features = []string{"x"}
	}
	for _, key := range features {
		j.add(o, key).scaled = !slices.Contains(o.IDs, key)
	}
	for _, key := range o.Targets {
		j.add(o, key)
	}
	if o.Label != "" {
		c := j.add(o, o.Label)
		c.label, c.DType = true, tensorops.Int32
	}
	for _, name := range o.Files {
		if err := j.read(name); err != nil {
			return nil, err
		}
	}
	t := j.table
	if t.n == 0 {
		return nil, fmt.Errorf("%w: %s has no line", data.ErrEmpty, listFiles(o.Files))
	}
	for _, c := range t.columns {
		c.widen()
	}
	if o.Label != "" {
		c := j.keys[o.Label]
		c.Classes, t.names = j.labels.finish(c.ints)
		t.settled.Classes, t.settled.ClassNames = c.Classes, t.names
	}
	return t, t.finish()
}

func (j *jsonTable) add(o Options, key string) *jsonColumn {
	c := &jsonColumn{column: &column{Field: Field{Name: key, DType: tensorops.Float32}, varying: slices.Contains(o.Varying, key)}}
	if slices.Contains(o.IDs, key) {
		c.DType = tensorops.Int32
	}
	j.table.columns, j.keys[key] = append(j.table.columns, c.column), c
	return c
}

func (j *jsonTable) read(name string) error {
	f, err := openFile(name)
	if err != nil {
		return err
	}
	defer f.close()
	content, err := f.text()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(content)
	lines.Buffer(nil, j.lineBytes)
	number := 0
	for lines.Scan() {
		number++
		line := lines.Bytes()
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := j.line(line, PlaceError{File: name, Line: number}); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return &PlaceError{File: name, Line: number + 1, Err: fmt.Errorf("%w: the line has more than %d bytes: write one object on each line",
			ErrFormat, j.lineBytes)}
	} else if err != nil {
		return err
	}
	return nil
}

// line adds one line.
func (j *jsonTable) line(line []byte, at PlaceError) error {
	fail := func(err error) error {
		at.Err = err
		return &at
	}
	dec, err := strictjson.NewDecoder(line)
	if err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			at.Byte = syntax.Offset
		}
		return fail(fmt.Errorf("%w: %w: fix the line, or get the file again if it is truncated", ErrFormat, err))
	}
	found := 0
	err = strictjson.Object(dec, func(key string) error {
		c, wanted := j.keys[key]
		if !wanted {
			return strictjson.Skip(dec)
		}
		found++
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		begin := dec.InputOffset() - int64(len(value))
		at.Name = key
		offset, err := j.value(c, value, at)
		if err != nil {
			at.Byte = begin + int64(offset) + 1
			return err
		}
		at.Name = ""
		return nil
	})
	if err == nil {
		err = strictjson.End(dec)
	}
	if err != nil {
		if at.Name == "" {
			err = fmt.Errorf("%w: %w", ErrFormat, err)
		}
		return fail(err)
	}
	if found < len(j.keys) {
		for _, c := range j.table.columns {
			if c.n == j.table.n {
				return fail(fmt.Errorf("%w: the key %s is missing: add it, or choose other keys with data.features, data.label and data.targets",
					ErrFormat,
					shown(c.Name)))
			}
		}
	}
	j.table.n++
	return nil
}

// value adds one field of one sample.
func (j *jsonTable) value(c *jsonColumn, text []byte, at PlaceError) (offset int, err error) {
	before := c.len()
	shape, offset, err := walkJSON(text, func(token []byte, isText bool) error {
		return j.leaf(c, token, isText, at)
	})
	if err != nil {
		return offset, err
	}
	if err := j.memory.take(4 * int64(c.len()-before+len(shape)+2)); err != nil {
		return 0, err
	}
	return 0, c.took(shape, before)
}

func (j *jsonTable) leaf(c *jsonColumn, token []byte, isText bool, at PlaceError) error {
	if c.label {
		id, err := j.labels.id(string(token), at)
		c.ints = append(c.ints, id)
		return err
	}
	v, ok := parseNumber(token)
	if isText || !ok {
		return fmt.Errorf("%w: found %s, which is not a finite number", ErrFormat, shown(string(token)))
	}
	if c.DType == tensorops.Int32 {
		if v != math.Trunc(v) || v < math.MinInt32 || v > math.MaxInt32 {
			return fmt.Errorf("%w: found %s, but ids must be 32-bit integers: fix it, or remove the key from data.ids", ErrFormat,
				shown(string(token)))
		}
		c.ints = append(c.ints, int32(v))
		return nil
	}
	factor := 1.0
	if c.scaled {
		factor = j.scale
	}
	f, ok := scaled(v, factor)
	if !ok {
		return fmt.Errorf("%w: found %s, which is too large for float32", ErrFormat, shown(string(token)))
	}
	c.float = append(c.float, f)
	return nil
}
