package rundir

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Teacher describes the content of TeacherTokensFile: for each position that a run trains on, the most likely tokens of its teacher. A
// position has their ids, TopK int32, and their log-probabilities with that of all others, TopK+1 float32, little-endian.
type Teacher struct {
	FormatVersion int     `json:"format_version"`
	Model         string  `json:"model"` // hash of the teacher's weights and number types
	Data          string  `json:"data"`  // hash of the sequences
	TopK          int     `json:"top_k"`
	Temperature   float64 `json:"temperature"`
	Positions     int64   `json:"positions"`
	Checksum      string  `json:"sha256"` // of TeacherTokensFile
}

const (
	teacherVersion  = 1
	teacherBytesMax = 1 << 16
)

// ErrTeacher: the file of a teacher's tokens cannot be used.
var ErrTeacher = errors.New("the teacher's tokens cannot be used")

// row is the size of a position in bytes.
func (t *Teacher) row() int64 { return 4 * int64(2*t.TopK+1) }

// ReadTeacher reads the description in a run's folder, and checks the tokens' file; nil: there is none.
func ReadTeacher(f checkpoint.FS) (*Teacher, error) {
	var t Teacher
	found, err := readKept(f, TeacherFile, teacherBytesMax, ErrTeacher, &t, func() error {
		if t.FormatVersion > teacherVersion {
			return TooNew(t.FormatVersion)
		}
		return t.check(f.Path(TeacherTokensFile))
	})
	if !found {
		return nil, err
	}
	return &t, nil
}

func (t *Teacher) check(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	h := sha256.New()
	n, err := io.Copy(h, bufio.NewReader(file))
	switch {
	case err != nil:
		return err
	case t.TopK < 1 || t.Positions < 0 || n != t.Positions*t.row():
		return fmt.Errorf("%s has %d bytes, but %d positions of %d tokens have %d", path, n, t.Positions, t.TopK, t.Positions*t.row())
	case hex.EncodeToString(h.Sum(nil)) != t.Checksum:
		return fmt.Errorf("%s: the checksum does not match the numbers", path)
	}
	return nil
}

// TeacherWriter writes a teacher's tokens, position by position.
type TeacherWriter struct {
	f    checkpoint.FS
	t    Teacher
	file *os.File
	out  *bufio.Writer
	hash hash.Hash
	row  []byte
}

// NewTeacherWriter begins a file. It becomes the run's with Commit.
func NewTeacherWriter(f checkpoint.FS, t Teacher) (*TeacherWriter, error) {
	file, err := os.Create(f.Path(folder.TmpPrefix + TeacherTokensFile))
	if err != nil {
		return nil, err
	}
	w := &TeacherWriter{f: f, t: t, file: file, hash: sha256.New()}
	w.out = bufio.NewWriterSize(io.MultiWriter(file, w.hash), 1<<20)
	return w, nil
}

// Write adds a position.
func (w *TeacherWriter) Write(ids []int32, logp []float32) error {
	w.row = w.row[:0]
	for _, id := range ids {
		w.row = binary.LittleEndian.AppendUint32(w.row, uint32(id))
	}
	for _, p := range logp {
		w.row = binary.LittleEndian.AppendUint32(w.row, math.Float32bits(p))
	}
	w.t.Positions++
	_, err := w.out.Write(w.row)
	return err
}

// Commit ends the file and describes it.
func (w *TeacherWriter) Commit() (*Teacher, error) {
	err := w.out.Flush()
	if err == nil {
		err = w.file.Sync()
	}
	if err = errors.Join(err, w.file.Close()); err == nil {
		err = os.Rename(w.file.Name(), w.f.Path(TeacherTokensFile))
	}
	if err != nil {
		return nil, err
	}
	w.t.FormatVersion, w.t.Checksum = teacherVersion, hex.EncodeToString(w.hash.Sum(nil))
	text, err := json.Marshal(w.t)
	if err != nil {
		return nil, err
	}
	return &w.t, checkpoint.WriteFileAtomic(w.f, TeacherFile, text)
}

// Abort removes the file.
func (w *TeacherWriter) Abort() {
	_ = w.file.Close() // it is removed
	_ = os.Remove(w.file.Name())
}

// TeacherReader reads a teacher's tokens. It is safe for concurrent use.
type TeacherReader struct {
	*Teacher
	file *os.File
}

// OpenTeacher opens the tokens that t describes.
func OpenTeacher(f checkpoint.FS, t *Teacher) (*TeacherReader, error) {
	file, err := os.Open(f.Path(TeacherTokensFile))
	if err != nil {
		return nil, err
	}
	return &TeacherReader{t, file}, nil
}

// Read reads positions from a first one on.
func (r *TeacherReader) Read(first int64, ids []int32, logp []float32) error {
	n, k := len(ids)/r.TopK, r.TopK
	if first < 0 || first+int64(n) > r.Positions {
		return fmt.Errorf("%w: positions %d to %d of %d", ErrTeacher, first+1, first+int64(n), r.Positions)
	}
	bytes := make([]byte, int64(n)*r.row())
	if _, err := r.file.ReadAt(bytes, first*r.row()); err != nil {
		return fmt.Errorf("%w: %w", ErrTeacher, err)
	}
	for i := range n {
		row := bytes[int64(i)*r.row():]
		for j := range k {
			ids[i*k+j] = int32(binary.LittleEndian.Uint32(row[4*j:]))
		}
		for j := range k + 1 {
			logp[i*(k+1)+j] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*(k+j):]))
		}
	}
	return nil
}

// Close closes the file.
func (r *TeacherReader) Close() error { return r.file.Close() }
