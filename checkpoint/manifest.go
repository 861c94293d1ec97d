package checkpoint

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// FormatVersion is the version of the checkpoints that this package writes.
const FormatVersion = 1

// Manifest lists the files of a checkpoint. It is written last: if it exists, everything that it
// lists was written before.
type Manifest struct {
	FormatVersion int            `json:"format_version"`
	Step          int            `json:"step"`
	Files         []ManifestFile `json:"files"` // by name
	// SHA256 is the hash of the manifest itself with this field empty, so that damage to the
	// manifest is noticed, too.
	SHA256 string `json:"sha256"`
}

// ManifestFile says what a file must be.
type ManifestFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// has reports whether the manifest lists the file.
func (m *Manifest) has(name string) bool {
	return slices.ContainsFunc(m.Files, func(f ManifestFile) bool { return f.Name == name })
}

// encodeManifest returns the only valid text of the checkpoint's manifest.
func encodeManifest(step int, files []ManifestFile) ([]byte, error) {
	m := Manifest{FormatVersion: FormatVersion, Step: step, Files: slices.Clone(files)}
	slices.SortFunc(m.Files, func(a, b ManifestFile) int { return cmp.Compare(a.Name, b.Name) })
	text, err := encodeJSON(m)
	if err != nil {
		return nil, err
	}
	m.SHA256 = hexHash(text)
	return encodeJSON(m)
}

// decodeManifest accepts only what encodeManifest returns.
func decodeManifest(text []byte) (*Manifest, error) {
	// First the version alone: everything else may differ in another one.
	var version struct {
		FormatVersion int `json:"format_version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, err
	}
	if version.FormatVersion > FormatVersion {
		return nil, fmt.Errorf("%w: it has version %d, but this program knows only %d", ErrVersion, version.FormatVersion, FormatVersion)
	}
	if version.FormatVersion < FormatVersion {
		return nil, fmt.Errorf("format version %d does not exist", version.FormatVersion)
	}
	var m Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, err
	}
	if m.Step < 0 {
		return nil, fmt.Errorf("the step is %d: it must be 0 or more", m.Step)
	}
	if len(m.Files) > FilesMax {
		return nil, fmt.Errorf("it lists %d files; the limit is %d", len(m.Files), FilesMax)
	}
	for i, f := range m.Files {
		if err := checkName(f.Name); err != nil {
			return nil, err
		}
		if f.Name == manifestName {
			return nil, errors.New("the manifest lists itself")
		}
		if i > 0 && f.Name == m.Files[i-1].Name {
			return nil, fmt.Errorf("the manifest lists %s twice", f.Name)
		}
		if f.Bytes < 0 {
			return nil, fmt.Errorf("the manifest gives %s the impossible size %d", f.Name, f.Bytes)
		}
	}
	want, err := encodeManifest(m.Step, m.Files)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(text, want) {
		return nil, errors.New("the manifest does not match its own checksum")
	}
	return &m, nil
}

func hexHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
