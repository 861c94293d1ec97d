package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint/internal/strictjson"
	"github.com/troupe-ml/troupe/checkpoint/safetensors"
)

// ProblemKind says what is wrong with a file.
type ProblemKind string

// The kinds of problems. Extra is a warning, Unverified is the word on a foreign
// directory; with any other the checkpoint is damaged.
const (
	Missing    ProblemKind = "missing"
	Truncated  ProblemKind = "truncated"
	Oversized  ProblemKind = "too long"
	Mismatch   ProblemKind = "checksum mismatch"
	Unreadable ProblemKind = "unreadable"
	Unverified ProblemKind = "not verified"
	Extra      ProblemKind = "extra"
)

// Problem is one thing that Verify found.
type Problem struct {
	File   string
	Kind   ProblemKind
	Detail string
}

// Warning tells whether the checkpoint is intact nevertheless.
func (p Problem) Warning() bool { return p.Kind == Extra }

func (p Problem) String() string {
	text := string(p.Kind)
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	file := p.File
	if checkName(file) != nil {
		file = strictjson.Quote(file)
	}
	return file + ": " + text
}

// Report is the result of Verify.
type Report struct {
	Dir      string
	Manifest *Manifest // nil when it is missing or damaged
	Problems []Problem
}

// Intact tells whether every file is what the manifest says.
func (r *Report) Intact() bool {
	return !slices.ContainsFunc(r.Problems, func(p Problem) bool { return !p.Warning() })
}

// Err is nil for an intact checkpoint, else ErrDamaged with the problems.
func (r *Report) Err() error {
	if r.Intact() {
		return nil
	}
	var texts []string
	for _, p := range r.Problems {
		if !p.Warning() {
			texts = append(texts, p.String())
		}
	}
	return fmt.Errorf("%s: %w: %s", r.Dir, ErrDamaged, strings.Join(texts, "; "))
}

// String is the report for a person: a line of summary and one per problem.
func (r *Report) String() string {
	var b strings.Builder
	state := "DAMAGED"
	switch {
	case r.Intact():
		state = "intact"
	case r.Problems[0].Kind == Unverified: // a foreign directory, and nothing else to say of it
		state = "not verified"
	}
	fmt.Fprintf(&b, "%s: %s", r.Dir, state)
	if m := r.Manifest; m != nil {
		var total int64
		for _, f := range m.Files {
			total += f.Bytes
		}
		fmt.Fprintf(&b, " (step %d, %d files, %d bytes, format %d)", m.Step, len(m.Files), total, m.FormatVersion)
	}
	b.WriteByte('\n')
	for _, p := range r.Problems {
		severity := "error"
		if p.Warning() {
			severity = "warning"
		}
		fmt.Fprintf(&b, "  %-7s  %s\n", severity, p)
	}
	return b.String()
}

// Verify reads every byte of a checkpoint and compares it with the manifest. The
// error is about a folder that can't be read at all; what is wrong inside it
// stands in the report.
func Verify(dir string) (report *Report, err error) {
	d, err := openDirectory(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	m, err := d.manifest()
	report = &Report{Dir: dir, Manifest: m}
	switch {
	case err != nil:
		report.Problems = []Problem{{manifestName, Unreadable, err.Error()}}
	case m == nil:
		report.Problems = append(d.checkTogether(nil), Problem{manifestName, Unverified, "there is no manifest to compare the files with"})
	default:
		report.Problems = d.check(m)
		if len(report.Problems) == 0 {
			report.Problems = d.checkTogether(m)
		}
		slices.Sort(names)
		for _, name := range names {
			if name != manifestName && !m.has(name) {
				report.Problems = append(report.Problems, Problem{name, Extra, "the manifest does not list it"})
			}
		}
	}
	return report, nil
}

// check compares each file with the manifest.
func (d *directory) check(m *Manifest) []Problem {
	var problems []Problem
	for _, f := range m.Files {
		if kind, detail := d.checkFile(f); kind != "" {
			problems = append(problems, Problem{f.Name, kind, detail})
		}
	}
	return problems
}

func (d *directory) checkFile(want ManifestFile) (ProblemKind, string) {
	f, err := d.open(want.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return Missing, fmt.Sprintf("the manifest lists it with %d bytes", want.Bytes)
	}
	if err != nil {
		return Unreadable, err.Error()
	}
	defer f.Close() //nolint:errcheck // read only
	info, err := f.Stat()
	if err != nil {
		return Unreadable, err.Error()
	}
	if have := info.Size(); have < want.Bytes {
		return Truncated, fmt.Sprintf("%d of %d bytes", have, want.Bytes)
	} else if have > want.Bytes {
		return Oversized, fmt.Sprintf("%d bytes instead of %d", have, want.Bytes)
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.LimitReader(f, want.Bytes)); err != nil {
		return Unreadable, err.Error()
	}
	if have := hex.EncodeToString(hash.Sum(nil)); have != want.SHA256 {
		return Mismatch, fmt.Sprintf("SHA-256 is %s, the manifest says %s", have, want.SHA256)
	}
	if strings.HasSuffix(want.Name, tensorsSuffix) {
		if _, err := safetensors.Parse(f, info.Size()); err != nil {
			return Unreadable, err.Error()
		}
	}
	return "", ""
}

// checkTogether makes sure that files which are each intact form a checkpoint.
func (d *directory) checkTogether(m *Manifest) []Problem {
	tensors, err := d.openModel(m)
	if err == nil {
		err = tensors.close()
	}
	if err != nil {
		return []Problem{{modelName, Unreadable, err.Error()}}
	}
	return nil
}
