package samples

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write makes a file in a folder of the test's.
func write(t testing.TB, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func zipped(t testing.TB, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// idxOf makes a file of IDX.
func idxOf(code byte, dims []uint32, elements ...any) string {
	b := []byte{0, 0, code, byte(len(dims))}
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, d)
	}
	for _, e := range elements {
		var err error
		if b, err = binary.Append(b, binary.BigEndian, e); err != nil {
			panic(err)
		}
	}
	return string(b)
}

// place takes the test's folder out of an error's message, so that it can be compared.
func place(err error, path string) string {
	if err == nil {
		return ""
	}
	return placeText(err.Error(), path)
}

func placeText(text, path string) string {
	return strings.ReplaceAll(text, filepath.Dir(path)+string(filepath.Separator), "")
}

// all reads every sample.
func all(t testing.TB, d Dataset) []Sample {
	t.Helper()
	var read []Sample
	for i := range d.Len() {
		s, err := At(d, i)
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, s)
	}
	return read
}

func floats(shape []int, v ...float32) tensorops.Array {
	return tensorops.Array{Shape: shape, Float: v}
}
func ints(shape []int, v ...int32) tensorops.Array { return tensorops.Array{Shape: shape, Int: v} }

// made is a dataset in memory.
type made struct {
	fields  []Field
	samples []Sample
	err     error // of every sample
}

func (m *made) Fields() []Field          { return m.fields }
func (m *made) Len() int                 { return len(m.samples) }
func (m *made) At(i int) (Sample, error) { return m.samples[i], m.err }

// counting is a dataset of n samples, sample i of which is the number i.
func counting(n int) *made {
	m := &made{fields: []Field{{Name: "x", DType: tensorops.Float32, Shape: []int{1}}}}
	for i := range n {
		m.samples = append(m.samples, Sample{floats([]int{1}, float32(i))})
	}
	return m
}
