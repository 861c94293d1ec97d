package folder

import (
	"errors"
	"fmt"
	"io"
	"path"
)

// AsideName returns a free name to keep something aside under: name.suffix, or
// where that is taken name.suffix-2 and so on.
func AsideName(f FS, name, suffix string) (string, error) {
	entries, err := f.ReadDir(path.Dir(name))
	if err != nil {
		return "", err
	}
	taken := make(map[string]bool)
	for _, e := range entries {
		taken[e.Name()] = true
	}
	free := name + "." + suffix
	for n := 2; taken[path.Base(free)]; n++ {
		free = fmt.Sprintf("%s.%s-%d", name, suffix, n)
	}
	return free, nil
}

// CopyAside copies a file whole and durably to a free name.
func CopyAside(f FS, name, suffix string) (to string, err error) {
	file, err := f.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	from, err := Whole(file)
	if err != nil {
		return "", err
	}
	if to, err = AsideName(f, name, suffix); err != nil {
		return "", err
	}
	return to, Replace(f, to, func(w io.Writer) error {
		_, err := io.Copy(w, from)
		return err
	})
}
