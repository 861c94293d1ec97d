package propose

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/words"
)

// setting is a key with its value.
type setting = config.Setting

// column is a column of a CSV file.
type column struct {
	name    string
	numbers int // cells that are numbers
	whole   int // cells that are integers
	values  map[string]bool
	most    float64 // largest absolute value
}

// table is the start of a CSV file.
type table struct {
	columns []column
	header  bool
	rows    int
	bytes   int // of these rows and the header
}

// mostClasses bounds the different integers of a column that holds classes.
const mostClasses = 100

// csv sets the keys for CSV: a classifier, or a regression.
func (p *Proposal) csv(train []file) error {
	f := train[0]
	separator := separatorOf(f.head)
	t, err := readTable(f, separator)
	if err != nil {
		return err
	}
	p.set("data.format", "csv", "Rows of numbers, with a class or a number to predict")
	if separator != ',' {
		p.set("data.separator", string(separator), "The character between columns")
	}
	if !t.header {
		p.set("data.header", false, "The first row is data; the columns are \"1\", \"2\", …")
	}
	y := targetOf(t.columns)
	target := t.columns[y]
	var features []string
	most := 0.0
	for i, c := range t.columns {
		if i != y && c.numbers == t.rows {
			features = append(features, c.name)
			most = max(most, c.most)
		}
	}
	if len(features) == 0 {
		return fmt.Errorf("%w: %s: no column except %q has numbers alone; the features must be numbers", ErrData, words.OneLine(f.name),
			target.name)
	}
	total := max(int64(t.rows), int64(float64(t.rows)*float64(bytesOf(train))/float64(t.bytes)))
	classes := target.numbers < t.rows || target.whole == t.rows && len(target.values) <= mostClasses
	if classes {
		p.About = fmt.Sprintf("CSV, %s rows, %d classes in the column %q", words.Count(total), len(target.values), target.name)
		p.set("data.label", target.name, "The column with the class; or targets = [...]: columns of numbers to predict")
	} else {
		p.About = fmt.Sprintf("CSV, %s rows, numbers to predict in the column %q", words.Count(total), target.name)
		p.set("data.targets", []string{target.name}, "The columns of numbers to predict; or label = ...: the column with a class")
	}
	if len(features) < len(t.columns)-1 {
		p.set("data.features", features, "The columns to learn from; the others are not numbers")
	}
	if most > 4 {
		p.set("data.scale", roundDigits(1/most, 4), fmt.Sprintf("Multiplies the features, whose largest is %g", most))
	}
	p.classifier(total, len(features))
	return nil
}

// separatorOf returns the character that divides the first line.
func separatorOf(head []byte) rune {
	line, _, _ := bytes.Cut(head, []byte("\n"))
	best, count := ',', bytes.Count(line, []byte(","))
	for _, r := range ";\t|" {
		if n := bytes.Count(line, []byte(string(r))); n > count {
			best, count = r, n
		}
	}
	return best
}

// readTable reads the start of a CSV file.
func readTable(f file, separator rune) (t table, err error) {
	text := bytes.TrimPrefix(f.head, []byte("\ufeff"))
	if !f.whole { // without the last row, which may be cut
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	in := csv.NewReader(bytes.NewReader(text))
	in.Comma, in.FieldsPerRecord = separator, 0
	for row := 1; t.rows < limitRows; row++ {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return t, fmt.Errorf("%w: %s: %w", ErrData, words.OneLine(f.name), err)
		}
		if row == 1 {
			t.header = slices.ContainsFunc(cells, func(cell string) bool { return !isNumber(cell) })
			for i, cell := range cells {
				c := column{name: strings.TrimSpace(cell), values: make(map[string]bool)}
				if !t.header {
					c.name = strconv.Itoa(i + 1)
				}
				t.columns = append(t.columns, c)
			}
			if t.header {
				continue
			}
		}
		t.rows++
		for i := range t.columns {
			t.columns[i].add(strings.TrimSpace(cells[i]))
		}
	}
	switch {
	case t.rows == 0:
		return t, fmt.Errorf("%w: %s has no row after its header", ErrData, words.OneLine(f.name))
	case len(t.columns) < 2:
		return t, fmt.Errorf("%w: %s has one column; it needs features, and a class or a number to predict", ErrData,
			words.OneLine(f.name))
	}
	t.bytes = int(in.InputOffset())
	return t, nil
}

func (c *column) add(cell string) {
	if len(c.values) <= mostClasses {
		c.values[cell] = true
	}
	x, err := strconv.ParseFloat(cell, 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) { // a run accepts only finite numbers
		return
	}
	c.numbers++
	c.most = max(c.most, math.Abs(x))
	if x == math.Trunc(x) {
		c.whole++
	}
}

func isNumber(cell string) bool {
	_, err := strconv.ParseFloat(strings.TrimSpace(cell), 64)
	return err == nil
}

// targetOf returns the column to predict: one with a usual name, else the last one.
func targetOf(columns []column) int {
	for _, name := range labelNames {
		if i := slices.IndexFunc(columns, func(c column) bool { return strings.EqualFold(c.name, name) }); i >= 0 {
			return i
		}
	}
	return len(columns) - 1
}

func roundDigits(x float64, digits int) float64 {
	scale := math.Pow10(digits - 1 - int(math.Floor(math.Log10(x))))
	return math.Round(x*scale) / scale
}

// classifier sets the keys of a model of dense layers.
func (p *Proposal) classifier(total int64, features int) {
	l, sequences := length{units: total, records: true}, 32
	if total < 320 {
		sequences = 8
	}
	p.setSteps(l.stepsFor(20, sequences, 200, 3000), l, sequences)
	p.set("model.family", "mlp", `Dense layers; family = "stack" takes its layers from the config`)
	p.set("model.layers", 2, "Hidden layers, each followed by GELU")
	hidden := 64
	if features > 200 {
		hidden = 128
	}
	p.set("model.hidden", hidden, "Width of the hidden layers")
	p.set("batch.sequences", sequences, "Samples in a step")
	p.set("optimizer.lr", 2e-3, "Peak learning rate")
	p.set("pipeline.stages", 1, "Stages of the pipeline: actors that compute")
}

// idx sets the keys for IDX files: those with one dimension are the labels of the others.
func (p *Proposal) idx(train, val []file) error {
	divide := func(all []file) (images, labels []string, n int64) {
		for _, f := range all {
			if f.head[3] > 1 {
				images = append(images, f.name)
				n += int64(binary.BigEndian.Uint32(f.head[4:]))
			} else {
				labels = append(labels, f.name)
			}
		}
		return images, labels, n
	}
	images, labels, n := divide(train)
	if len(images) == 0 || len(images) != len(labels) {
		return fmt.Errorf("%w: of the IDX files %s have several dimensions and %s one; each file of samples needs a file of labels", ErrData,
			words.Plural(len(images), "file"), words.Plural(len(labels), "file"))
	}
	for i := range p.Settings {
		if p.Settings[i].Key == "data.train" {
			p.Settings[i] = setting{Key: "data.train", Value: images, Note: "Files of samples"}
		}
	}
	p.set("data.format", "idx", "The format of MNIST")
	p.set("data.labels", labels, "Files of labels, one for each file of train")
	if valImages, valLabels, _ := divide(val); len(valImages) > 0 && len(valImages) == len(valLabels) {
		p.set("data.val", valImages, "Files of samples to validate on")
		p.set("data.val_labels", valLabels, "Files of labels, one for each file of val")
	}
	p.About = fmt.Sprintf("IDX, %s samples with labels", words.Count(n))
	p.classifier(n, 784)
	return nil
}
