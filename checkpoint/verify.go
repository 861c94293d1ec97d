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

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// ProblemKind says what is wrong with a file.
type ProblemKind string

// The kinds of problems. Extra is a warning; Unverified is for another program's folder.
const (
	Truncated  ProblemKind = "truncated"         // damaged
	Oversized  ProblemKind = "too long"          // damaged
	Mismatch   ProblemKind = "checksum mismatch" // damaged
	Malformed  ProblemKind = "malformed"         // damaged: completely read, but inconsistent
	Missing    ProblemKind = "missing"
	Unreadable ProblemKind = "unreadable"
	TooNew     ProblemKind = "too new"
	Unverified ProblemKind = "not verified"
	Extra      ProblemKind = "extra"
)

// state returns the state of a checkpoint with this problem.
func (k ProblemKind) state() State {
	switch k {
	case Missing, Unreadable, TooNew, Unverified:
		return State(k)
	case Extra:
		return StateIntact
	default:
		return StateDamaged
	}
}

var errUnverified = errors.New("the checkpoint cannot be verified")

// Problem is one problem that Verify found.
type Problem struct {
	File   string
	Kind   ProblemKind
	Detail string
	err    error
}

// problem returns the problem for an error about a file.
func problem(file string, err error) Problem {
	return Problem{file, toFault(err).kind, err.Error(), err}
}

// Warning reports whether the checkpoint is intact nevertheless.
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
	Manifest *Manifest // nil if it is missing or unreadable
	Problems []Problem
}

// State returns the state of the checkpoint.
func (r *Report) State() State {
	worst := 0
	for _, p := range r.Problems {
		worst = max(worst, slices.Index(states, p.Kind.state()))
	}
	return states[worst]
}

// Intact reports whether every file matches the manifest.
func (r *Report) Intact() bool { return r.State() == StateIntact }

// Err returns nil for an intact checkpoint, otherwise the error of its state with the problems.
func (r *Report) Err() error {
	if r.Intact() {
		return nil
	}
	e := &reportError{dir: r.Dir, state: r.State().err()}
	for _, p := range r.Problems {
		if !p.Warning() {
			e.problems = append(e.problems, p)
		}
	}
	return e
}

// reportError is the error of one state, whatever states the individual problems have; it unwraps
// to their causes.
type reportError struct {
	dir      string
	state    error
	problems []Problem
}

func (e *reportError) Error() string {
	texts := make([]string, len(e.problems))
	for i, p := range e.problems {
		texts[i] = p.String()
	}
	return fmt.Sprintf("%s: %v: %s", strictjson.Plain(e.dir), e.state, strings.Join(texts, "; "))
}

func (e *reportError) Unwrap() []error {
	all := []error{e.state}
	for _, p := range e.problems {
		if p.err != nil {
			all = append(all, p.err)
		}
	}
	return all
}

// String returns the report for users: a summary line and one line for each problem.
func (r *Report) String() string {
	var b strings.Builder
	state := string(r.State())
	if s := r.State(); s != StateIntact && s != StateUnverified {
		state = strings.ToUpper(state)
	}
	fmt.Fprintf(&b, "%s: %s", strictjson.Plain(r.Dir), state)
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

// Verify reads every byte of a checkpoint and compares it with the manifest. It returns an error
// only if the folder can't be read at all; problems inside the folder are in the report.
func Verify(dir string) (report *Report, err error) {
	f, err := folder.Open(dir)
	if err != nil {
		return nil, folder.Unreadable(err)
	}
	d := newDirectory(f)
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.verify(false)
}

// verify is Verify; own says that a manifest is required.
func (d *directory) verify(own bool) (*Report, error) {
	names, err := d.names()
	if err != nil {
		return nil, folder.Unreadable(err)
	}
	report := d.check(own, false)
	if len(report.Problems) == 0 {
		report.Problems = d.checkTogether(report.Manifest)
	}
	switch {
	case report.Manifest != nil:
		for _, name := range names {
			if name != manifestName && !report.Manifest.has(name) {
				report.Problems = append(report.Problems, Problem{name, Extra, "the manifest does not list it", nil})
			}
		}
	case !slices.Contains(names, manifestName) && !own:
		report.Problems = append(report.Problems, Problem{manifestName, Unverified, "there is no manifest to verify the files", nil})
	}
	return report, nil
}

// check compares each file with the manifest. A folder without a manifest belongs to another
// program and has no problems, unless own is set. With keep, files that are read later stay open.
func (d *directory) check(own, keep bool) *Report {
	report := &Report{Dir: d.path()}
	m, err := d.manifest()
	switch {
	case errors.Is(err, fs.ErrNotExist) && !own:
	case errors.Is(err, fs.ErrNotExist):
		report.Problems = []Problem{{manifestName, Missing, "", asFault(err)}}
	case err != nil:
		report.Problems = []Problem{problem(manifestName, err)}
	default:
		report.Manifest = m
		for _, f := range m.Files {
			if err := d.checkFile(f, keep); err != nil {
				report.Problems = append(report.Problems, problem(f.Name, err))
			}
		}
	}
	return report
}

// checkFile compares a file with the manifest, byte by byte.
func (d *directory) checkFile(want ManifestFile, keep bool) error {
	f, err := d.openListed(want)
	if err != nil {
		return err
	}
	err = checkContent(f, want)
	if err == nil && keep && len(d.kept) < keptFilesMax && !strings.HasSuffix(want.Name, tensorsSuffix) {
		d.kept[want.Name] = f
		return nil
	}
	_ = f.Close() // opened for reading only
	return err
}

func checkContent(f folder.File, want ManifestFile) error {
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(f, want.Bytes))
	if err != nil {
		return asFault(err)
	}
	if n < want.Bytes {
		// The length was right, so this is an error of reading, not of the file.
		return faultf(Unreadable, "read only %d of %d bytes: %w", n, want.Bytes, io.ErrUnexpectedEOF)
	}
	if have := hex.EncodeToString(hash.Sum(nil)); have != want.SHA256 {
		return faultf(Mismatch, "the SHA-256 is %s, but the manifest says %s", have, want.SHA256)
	}
	if strings.HasSuffix(want.Name, tensorsSuffix) {
		if _, err := safetensors.Parse(f, want.Bytes); err != nil {
			return asTensorFault(err)
		}
	}
	return nil
}

// openListed opens a file and compares its length with the manifest.
func (d *directory) openListed(want ManifestFile) (folder.File, error) {
	f, err := d.open(want.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, faultf(Missing, "the manifest lists it with %d bytes", want.Bytes)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		err = asFault(err)
	} else if have := info.Size(); have < want.Bytes {
		err = faultf(Truncated, "the file has %d of %d bytes", have, want.Bytes)
	} else if have > want.Bytes {
		err = faultf(Oversized, "the file has %d bytes instead of %d", have, want.Bytes)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkTogether checks that files which are intact individually form a checkpoint.
func (d *directory) checkTogether(m *Manifest) []Problem {
	tensors, err := d.openModel(m)
	if err == nil {
		err = tensors.close()
	}
	if err != nil {
		return []Problem{problem(modelName, err)}
	}
	return nil
}
