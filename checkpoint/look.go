package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// Look is what is known of a checkpoint without reading its tensors.
type Look struct {
	*Report       // from the lengths of the files; their contents may still differ
	Bytes   int64 // size of the existing files
	Written time.Time
	File    []byte // content of the requested file; nil: missing or wrong
}

// Look compares the lengths of the files of a step's checkpoint with its manifest, and reads and
// verifies one small file. If there is no checkpoint of the step, or not any more, the error is
// ErrNone.
func (s *Store) Look(step int, file string) (*Look, error) {
	look := &Look{}
	report, err := s.report(step, func(d *directory) (*Report, error) { return look.at(d, file) })
	look.Report = report
	return look, err
}

func (l *Look) at(d *directory, file string) (*Report, error) {
	report := &Report{Dir: d.path()}
	m, err := d.manifest()
	if err != nil {
		report.Problems = []Problem{problem(manifestName, err)}
		return report, nil
	}
	report.Manifest = m
	if l.Written, err = d.written(); err != nil {
		return nil, err
	}
	for _, want := range m.Files {
		if err := l.file(d, want, file); err != nil {
			report.Problems = append(report.Problems, problem(want.Name, err))
		}
	}
	return report, nil
}

// file checks one file, and reads it if it is the requested one.
func (l *Look) file(d *directory, want ManifestFile, asked string) error {
	f, err := d.openListed(want)
	if err != nil {
		return err
	}
	l.Bytes += want.Bytes
	if err := f.Close(); err != nil || want.Name != asked {
		return asFault(err)
	}
	text, err := d.read(want.Name, FileBytesMax)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	if have := hex.EncodeToString(sum[:]); have != want.SHA256 {
		return faultf(Mismatch, "the SHA-256 is %s, but the manifest says %s", have, want.SHA256)
	}
	l.File = text
	return nil
}

// written returns the time of the manifest, which is written last.
func (d *directory) written() (time.Time, error) {
	f, err := d.open(manifestName)
	if err != nil {
		return time.Time{}, err
	}
	info, err := f.Stat()
	if err := errors.Join(err, f.Close()); err != nil {
		return time.Time{}, asFault(err)
	}
	return info.ModTime(), nil
}
