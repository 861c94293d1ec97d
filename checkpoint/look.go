package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"
)

// Look is what can be told of a checkpoint without reading its tensors.
type Look struct {
	*Report       // by the lengths of the files; the contents may differ nevertheless
	Bytes   int64 // of the files that are there
	Written time.Time
	File    []byte // the file that was asked for; nil: it is not there, or wrong
}

// Look compares the files of a step's checkpoint with its manifest by their lengths,
// and reads one small file, whose content has to be right. That there is none, or none
// any more, is ErrNone.
func (s *Store) Look(step int, file string) (*Look, error) {
	look := &Look{}
	report, err := s.report(step, func(d *directory) (*Report, error) {
		report := &Report{Dir: d.path()}
		m, err := d.manifest()
		if err != nil {
			report.Problems = []Problem{problem(manifestName, err)}
			return report, nil
		}
		report.Manifest = m
		if look.Written, err = d.written(); err != nil {
			return nil, err
		}
		for _, want := range m.Files {
			if err := look.file(d, want, file); err != nil {
				report.Problems = append(report.Problems, problem(want.Name, err))
			}
		}
		return report, nil
	})
	look.Report = report
	return look, err
}

// file looks at one file, and reads it if it is the one asked for.
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
		return faultf(Mismatch, "SHA-256 is %s, the manifest says %s", have, want.SHA256)
	}
	l.File = text
	return nil
}

// written is when the manifest was, which is written last.
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
