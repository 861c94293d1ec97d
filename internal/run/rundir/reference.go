package rundir

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// Reference is the content of ReferenceFile: the log-probabilities of all answers that a run learns from under its reference model.
type Reference struct {
	FormatVersion int       `json:"format_version"`
	Model         string    `json:"model"` // hash of the reference model's weights and number types
	Data          string    `json:"data"`  // hash of the answers
	Checksum      string    `json:"sha256"`
	Train         []float64 `json:"train"`
	Val           []float64 `json:"val"`
}

const referenceVersion = 1

// referenceBytesMax limits the file. A number has up to 25 bytes.
const referenceBytesMax = 2 << 30

// ErrReference: the file of a reference model's log-probabilities cannot be used.
var ErrReference = errors.New("the log-probabilities of the reference model cannot be used")

// checksum returns a hash of the numbers.
func (r *Reference) checksum() string {
	h := sha256.New()
	for _, list := range [][]float64{r.Train, r.Val} {
		for _, v := range append([]float64{float64(len(list))}, list...) {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ReadReference reads the file in a run's folder; nil: there is none.
func ReadReference(f checkpoint.FS) (*Reference, error) {
	var r Reference
	found, err := readKept(f, ReferenceFile, referenceBytesMax, ErrReference, &r, func() error {
		switch {
		case r.FormatVersion > referenceVersion:
			return TooNew(r.FormatVersion)
		case r.Checksum != r.checksum():
			return errors.New("the checksum does not match the numbers")
		}
		return nil
	})
	if !found {
		return nil, err
	}
	return &r, nil
}

// readKept reads a file in JSON of a run's folder, without which the run cannot go on, and checks what is in it. An error is broken.
func readKept(f checkpoint.FS, name string, bytesMax int64, broken error, to any, check func() error) (found bool, err error) {
	text, err := folder.ReadFile(f, name, bytesMax)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err == nil {
		err = check()
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w: %w; restore the file, or start a new run in another folder", f.Path(name), broken, err)
	}
	return true, nil
}

// WriteReference writes the file.
func WriteReference(f checkpoint.FS, r *Reference) error {
	r.FormatVersion, r.Checksum = referenceVersion, r.checksum()
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrReference, err)
	}
	return checkpoint.WriteFileAtomic(f, ReferenceFile, text)
}
