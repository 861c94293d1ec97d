package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Dataset is a folder of data as Hugging Face's hub has it: files that belong to splits, such as train and validation.
type Dataset struct {
	Dir    string
	Splits map[string][]string // files of each split, sorted by path
}

// Names of splits, as Hugging Face's datasets finds them in the names of files and folders (data_files.py).
var splitWords = map[string]string{
	"train": SplitTrain, "training": SplitTrain,
	"validation": SplitValidation, "valid": SplitValidation, "dev": SplitValidation, "val": SplitValidation,
	"test": SplitTest, "testing": SplitTest, "eval": SplitTest, "evaluation": SplitTest,
}

// Splits that have one name, whatever their files are called.
const (
	SplitTrain      = "train"
	SplitValidation = "validation"
	SplitTest       = "test"
)

// limitReadmeBytes bounds a README.md, whose start says which files belong to which split.
const limitReadmeBytes = 4 << 20

var (
	// shardName is the name of a part of a split: train-00000-of-00002.parquet.
	shardName = regexp.MustCompile(`^(.+)-\d{5}-of-\d{5}[^/]*\.[^/]+$`)
	notWord   = regexp.MustCompile(`[-._ 0-9/]+`)
)

var errDataset = errors.New("the dataset")

// FindDataset returns the splits of a folder, or nil if the folder is not laid out like a dataset. subset names one of several
// subsets (config_name in README.md, or a folder); "": the only one, or the one named default.
func FindDataset(dir, subset string) (*Dataset, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil
	}
	for _, name := range []string{"dataset_dict.json", "state.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return nil, fmt.Errorf("%w %s was written by save_to_disk, as Arrow files; save it as Parquet: "+
				"datasets.load_from_disk(DIR)[\"train\"].to_parquet(\"train.parquet\")", errDataset, plain(dir))
		}
	}
	configs, readme, err := readConfigs(dir)
	if err != nil {
		return nil, fmt.Errorf("%w %s: README.md: %w", errDataset, plain(dir), err)
	}
	d := &Dataset{Dir: dir, Splits: make(map[string][]string)}
	if len(configs) > 0 {
		c, err := chooseConfig(dir, configs, subset)
		if err != nil {
			return nil, err
		}
		if c.files != nil || subset == "" || len(c.dir) > 0 {
			return d, d.byConfig(c)
		}
	}
	return d.byName(subset, readme)
}

// Split returns the files of a split. A split that is not there is an error that lists those that are.
func (d *Dataset) Split(name string) ([]string, error) {
	if files := d.Splits[name]; len(files) > 0 {
		return files, nil
	}
	if files := d.Splits[splitWords[strings.ToLower(name)]]; len(files) > 0 {
		return files, nil
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.Splits)) {
		names = append(names, fmt.Sprintf("%q", name))
	}
	return nil, fmt.Errorf("%w %s has no split %q; its splits are %s", errDataset, plain(d.Dir), name, strings.Join(names, ", "))
}

// dataConfig is a subset in README.md.
type dataConfig struct {
	name  string
	dir   string
	files map[string][]string // patterns of each split
	def   bool
}

// readConfigs reads the subsets at the start of README.md. readme reports whether there is one.
func readConfigs(dir string) (configs []dataConfig, readme bool, err error) {
	f, err := os.Open(filepath.Join(dir, "README.md"))
	if err != nil {
		return nil, false, nil //nolint:nilerr // without one, the names of files say what they are
	}
	defer func() { _ = f.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, limitReadmeBytes))
	if err != nil {
		return nil, true, err
	}
	text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
	head, ok := bytes.CutPrefix(text, []byte("---\n"))
	if !ok {
		return nil, true, nil
	}
	head, _, ok = bytes.Cut(head, []byte("\n---"))
	if !ok {
		return nil, true, nil
	}
	var card struct {
		Configs []struct {
			Name    string    `yaml:"config_name"`
			Files   yaml.Node `yaml:"data_files"`
			Dir     string    `yaml:"data_dir"`
			Default bool      `yaml:"default"`
		} `yaml:"configs"`
	}
	if err := yaml.Unmarshal(head, &card); err != nil {
		return nil, true, err
	}
	for _, c := range card.Configs {
		of := dataConfig{name: c.Name, dir: c.Dir, def: c.Default}
		if c.Files.Kind != 0 {
			if of.files, err = splitPatterns(&c.Files); err != nil {
				return nil, true, fmt.Errorf("configs: %.100q: data_files: %w", c.Name, err)
			}
		}
		configs = append(configs, of)
	}
	return configs, true, nil
}

// splitPatterns reads data_files: a pattern, a list of patterns, or a list of splits with a path or paths.
func splitPatterns(n *yaml.Node) (map[string][]string, error) {
	all := make(map[string][]string)
	var one string
	if n.Decode(&one) == nil {
		all[SplitTrain] = []string{one}
		return all, nil
	}
	var list []string
	if n.Decode(&list) == nil {
		all[SplitTrain] = list
		return all, nil
	}
	var splits []struct {
		Split string    `yaml:"split"`
		Path  yaml.Node `yaml:"path"`
	}
	if err := n.Decode(&splits); err != nil {
		return nil, err
	}
	for _, s := range splits {
		var paths []string
		if s.Path.Decode(&paths) != nil {
			var one string
			if err := s.Path.Decode(&one); err != nil {
				return nil, err
			}
			paths = []string{one}
		}
		all[s.Split] = append(all[s.Split], paths...)
	}
	return all, nil
}

// chooseConfig returns the subset with a name; "": the default one.
func chooseConfig(dir string, configs []dataConfig, subset string) (dataConfig, error) {
	var names []string
	for _, c := range configs {
		if c.name == subset || subset == "" && (c.def || len(configs) == 1) {
			return c, nil
		}
		names = append(names, fmt.Sprintf("%.100q", c.name))
	}
	if subset == "" {
		for _, c := range configs {
			if c.name == "default" {
				return c, nil
			}
		}
		return dataConfig{}, fmt.Errorf("%w %s has several subsets: %s; choose one with data.subset", errDataset, plain(dir),
			strings.Join(names, ", "))
	}
	return dataConfig{}, fmt.Errorf("%w %s has no subset %q; its subsets are %s", errDataset, plain(dir), subset, strings.Join(names, ", "))
}

// byConfig fills the splits from a subset of README.md.
func (d *Dataset) byConfig(c dataConfig) error {
	if c.files == nil {
		sub, err := (&Dataset{Dir: filepath.Join(d.Dir, filepath.FromSlash(c.dir)), Splits: d.Splits}).byName("", true)
		if err == nil && sub == nil {
			err = fmt.Errorf("%w %s has no data files", errDataset, plain(d.Dir))
		}
		return err
	}
	for split, patterns := range c.files {
		var all []string
		for _, p := range patterns {
			p = path.Join(filepath.ToSlash(c.dir), p)
			if !filepath.IsLocal(filepath.FromSlash(p)) {
				return fmt.Errorf("%w %s: README.md: the path %.200q lies outside the folder", errDataset, plain(d.Dir), p)
			}
			all = append(all, filepath.Join(d.Dir, filepath.FromSlash(p)))
		}
		files, err := Files(all)
		if err != nil {
			return fmt.Errorf("%w %s, split %q: %w", errDataset, plain(d.Dir), split, err)
		}
		d.Splits[split] = files
	}
	return nil
}

// isDataFile reports whether a name is that of a file of rows.
func isDataFile(name string) bool {
	name = strings.ToLower(name)
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	switch path.Ext(name) {
	case parquetSuffix, ".jsonl", ".ndjson", ".json":
		switch path.Base(name) {
		case "dataset_infos.json", "dataset_info.json":
			return false
		}
		return true
	}
	return false
}

// byName fills the splits from the names of files and folders; nil: none of them says that this is a dataset.
func (d *Dataset) byName(subset string, readme bool) (*Dataset, error) {
	root := d.Dir
	if subset != "" {
		root = filepath.Join(d.Dir, subset)
		if info, err := os.Stat(root); !filepath.IsLocal(subset) || err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%w %s has no subset %q: README.md does not name it, and it is not a folder", errDataset, plain(d.Dir), subset)
		}
	}
	is := readme || subset != ""
	shards := make(map[string]bool) // folders of files that are named as shards
	var rest []string
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return plainError(err)
		}
		if strings.HasPrefix(e.Name(), ".") && name != root {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if e.IsDir() || !isDataFile(e.Name()) {
			return nil
		}
		is = is || path.Ext(strings.ToLower(e.Name())) == parquetSuffix
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		var split string
		if m := shardName.FindStringSubmatch(path.Base(rel)); m != nil {
			split = m[1]
			if word := splitWords[strings.ToLower(split)]; word != "" {
				split = word
			}
			shards[path.Dir(rel)] = true
		} else {
			split = splitOf(rel)
		}
		if split == "" {
			rest = append(rest, name)
			return nil
		}
		is = true
		d.Splits[split] = append(d.Splits[split], name)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", errDataset, plain(d.Dir), err)
	}
	if len(shards) > 1 {
		return nil, fmt.Errorf("%w %s has shards in several folders, such as %s; choose one with data.subset, or name its files",
			errDataset, plain(d.Dir), strings.Join(slices.Sorted(maps.Keys(shards))[:2], " and "))
	}
	if !is || len(rest) == 0 && len(d.Splits) == 0 {
		return nil, nil
	}
	// Files whose names say nothing are to train on, if no other file is.
	if len(d.Splits[SplitTrain]) == 0 && len(rest) > 0 {
		d.Splits[SplitTrain] = rest
	}
	for _, files := range d.Splits {
		slices.Sort(files)
	}
	return d, nil
}

// splitOf returns the split that a path names; "": none. The words nearest to the file's own name count first.
func splitOf(rel string) string {
	rel = strings.ToLower(rel)
	for ; rel != "." && rel != "/"; rel = path.Dir(rel) {
		for _, word := range notWord.Split(path.Base(rel), -1) {
			if split := splitWords[word]; split != "" {
				return split
			}
		}
	}
	return ""
}
