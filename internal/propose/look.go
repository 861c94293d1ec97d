package propose

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/data"
)

// ErrData means that no configuration can be proposed for the data.
var ErrData = errors.New("no config fits this data")

// kind is what a file looks like.
type kind string

const (
	isText  kind = "text"
	isCSV   kind = "CSV"
	isLines kind = "JSON lines"
	isIDX   kind = "IDX"
	isIDs   kind = "token ids"
)

// file is a data file.
type file struct {
	name  string
	kind  kind
	bytes int64  // of its content; estimated if it is compressed
	head  []byte // start of its content, decompressed
	whole bool   // head is all of it
}

// find finds files to train on, and files to validate on that a folder names. dataset reports that a folder is laid out like a
// dataset: a run takes its splits from it.
func find(patterns []string) (train, val []string, dataset bool, err error) {
	var rest []string
	for _, p := range patterns {
		d, err := data.FindDataset(p, "")
		if err != nil {
			return nil, nil, false, err
		}
		if d == nil {
			rest = append(rest, p)
			continue
		}
		files, err := d.Split(data.SplitTrain)
		if err != nil {
			return nil, nil, false, err
		}
		train, val, dataset = append(train, files...), append(val, d.Splits[data.SplitValidation]...), true
	}
	if len(rest) > 0 {
		var files []string
		if files, err = data.Files(rest); err != nil {
			return nil, nil, false, err
		}
		train = append(train, files...)
	}
	return train, val, dataset, nil
}

// look reads the start of files.
func look(names []string) ([]file, error) {
	all := make([]file, 0, len(names))
	left := int64(limitLookBytes)
	for _, name := range names {
		f, err := lookAt(name, max(limitHeadBytes, min(left, limitLookBytes)))
		if err != nil {
			return nil, err
		}
		if left -= int64(len(f.head)); left <= 0 {
			f.head = f.head[:min(len(f.head), limitHeadBytes)]
		}
		all = append(all, f)
	}
	return all, nil
}

// lookAt reads the start of a file and says what it looks like.
func lookAt(name string, most int64) (f file, err error) {
	f.name = name
	in, err := os.Open(name)
	if err != nil {
		return f, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	info, err := in.Stat()
	if err != nil {
		return f, err
	}
	f.bytes = info.Size()
	content, packed, end, err := data.Unpacked(name, bufio.NewReader(in))
	if err != nil {
		return f, err
	}
	defer end()
	if f.head, err = io.ReadAll(io.LimitReader(content, most+1)); err != nil {
		return f, fmt.Errorf("%s: %w", data.Plain(name), err)
	}
	f.whole = int64(len(f.head)) <= most
	switch {
	case f.whole:
		f.bytes = int64(len(f.head))
	case packed:
		f.bytes *= packedFactor
	}
	f.kind, err = kindOf(strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst"), f.head)
	return f, err
}

// kindOf says what a file looks like by its name and its start.
func kindOf(name string, head []byte) (kind, error) {
	switch ext := filepath.Ext(name); {
	case ext == ".npy" || bytes.HasPrefix(head, []byte("\x93NUMPY")):
		return "",
			fmt.Errorf("%w: %s is a NumPy array. Write token ids as plain numbers: np.load(%q).astype(np.uint16).tofile(\"train.bin\"); write samples as CSV: np.savetxt",
				ErrData, data.Plain(name), filepath.Base(name))
	case isIDXFile(name, head):
		return isIDX, nil
	case ext == ".bin" || ext == ".ids" || ext == ".uint16" || ext == ".u16":
		return isIDs, nil
	case ext == ".parquet":
		return isLines, nil
	case ext == ".csv" || ext == ".tsv":
		return isCSV, notText(name, head)
	case ext == ".jsonl" || ext == ".ndjson" || ext == ".json":
		if err := notText(name, head); err != nil {
			return "", err
		}
		switch at := bytes.TrimSpace(head); {
		case len(at) > 0 && (ext != ".json" || at[0] == '{' && oneLineEach(head)):
			return isLines, nil
		case len(at) > 0 && at[0] == '[' && ext == ".json":
			return "", fmt.Errorf("%w: %s is one JSON array. Write one object a line: jq -c '.[]' %s > %s", ErrData, data.Plain(name),
				strconv.Quote(name), strconv.Quote(strings.TrimSuffix(name, ".json")+".jsonl"))
		}
	}
	return isText, notText(name, head)
}

// notText rejects what is neither text nor a format that a run reads.
func notText(name string, head []byte) error {
	if err := data.NotText(name, head); err != nil {
		return fmt.Errorf("%w: %w", ErrData, err)
	}
	if bytes.IndexByte(head[:min(len(head), limitHeadBytes)], 0) >= 0 {
		return fmt.Errorf("%w: %s has zero bytes, so it is not text; give text, JSON lines, CSV, IDX, or token ids (.bin)", ErrData,
			data.Plain(name))
	}
	return nil
}

// oneLineEach reports whether the first line is a whole JSON object.
func oneLineEach(head []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimSpace(head), []byte("\n"))
	line = bytes.TrimSpace(line)
	return len(line) > 0 && line[len(line)-1] == '}'
}

// isIDXFile reports whether a file starts like IDX, the format of MNIST.
func isIDXFile(name string, head []byte) bool {
	if len(head) < 8 || head[0] != 0 || head[1] != 0 || !slices.Contains([]byte{8, 9, 0xb, 0xc, 0xd, 0xe}, head[2]) {
		return false
	}
	return strings.Contains(name, "idx") || strings.Contains(name, "ubyte") || head[3] >= 1 && head[3] <= 4 &&
		binary.BigEndian.Uint32(head[4:]) > 0
}

var (
	forTraining   = regexp.MustCompile(`(?i)(^|[^a-z])train(ing)?([^a-z]|$)`)
	forValidation = regexp.MustCompile(`(?i)(^|[^a-z])(val|valid|validation|test|dev|t10k)([^a-z]|$)`)
)

// apart divides files by their names into those to train on and those to validate on. If the names do not say it, all are to train
// on.
func apart(all []file) (train, val []file) {
	for _, f := range all {
		switch base := filepath.Base(f.name); {
		case forTraining.MatchString(base):
			train = append(train, f)
		case forValidation.MatchString(base):
			val = append(val, f)
		default:
			return all, nil
		}
	}
	if len(train) == 0 {
		return all, nil
	}
	return train, val
}

// sameKind returns the kind of all files.
func sameKind(all []file) (kind, error) {
	is := all[0].kind
	for _, f := range all {
		switch {
		case f.kind == is:
		case slices.Contains([]kind{isIDX, isIDs}, is) || slices.Contains([]kind{isIDX, isIDs}, f.kind):
			return "", fmt.Errorf("%w: %s is %s, but %s is %s; give files of one kind, such as 'DIR/*.txt'", ErrData, data.Plain(all[0].name),
				all[0].kind, data.Plain(f.name), f.kind)
		default:
			is = isText // each of them is text, too
		}
	}
	return is, nil
}

// shorter replaces a list of files by a pattern that matches the same files, if there is one.
func shorter(patterns []string, all []file) []string {
	if len(patterns) <= 3 {
		return patterns
	}
	names := make([]string, len(all))
	dir, ext := filepath.Dir(all[0].name), filepath.Ext(all[0].name)
	for i, f := range all {
		if names[i] = f.name; filepath.Dir(f.name) != dir {
			return patterns
		}
		if filepath.Ext(f.name) != ext {
			ext = ""
		}
	}
	pattern := filepath.ToSlash(filepath.Join(dir, "*"+ext))
	if same, err := data.Files([]string{pattern}); err == nil && slices.Equal(same, names) {
		return []string{pattern}
	}
	return patterns
}

// nameOf makes a run's name of the name of data.
func nameOf(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	base := filepath.Base(abs)
	if info, err := os.Stat(abs); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		base, _, _ = strings.Cut(base, ".")
	}
	return NameOf(base)
}

// NameOf makes a valid name of a run of a text; "": nothing of it can be in a name.
func NameOf(text string) string {
	name := strings.Trim(notInNames.ReplaceAllString(text, "-"), "-. ")
	return name[:min(len(name), 40)]
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
