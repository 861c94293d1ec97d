package checkpoint

import "slices"

// WithoutFile returns a valid manifest that lists all files of text but one.
func WithoutFile(text []byte, name string) ([]byte, error) {
	m, err := decodeManifest(text)
	if err != nil {
		return nil, err
	}
	return encodeManifest(m.Step, slices.DeleteFunc(m.Files, func(f ManifestFile) bool { return f.Name == name }))
}

// Meant is meant.
func Meant(path string, use func(dir string) (sure bool)) error { return meant(path, use) }
