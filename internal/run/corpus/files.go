package corpus

import (
	"errors"
	"slices"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/plan"
)

// Files returns the files of data.train, or of all sources, and those of data.val. In a folder that is laid out like a dataset, they are
// those of a split. A file of data.val or of an [[eval]] is not used for training, even if data.train matches it: these files are
// excluded.
func Files(cfg *config.Config) (train, val, excluded []string, err error) {
	f, err := findFiles(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, p := range f.parts {
		train = append(train, p.files...)
	}
	return train, f.val, f.excluded, nil
}

// found are the files of a configuration.
type found struct {
	parts         []*part // at least one
	val, excluded []string
}

func findFiles(cfg *config.Config) (f found, err error) {
	var errs []error
	var names [][]string // of each part, with links to the same files
	var splits []string  // to validate on, of folders to train on
	add := func(key, name string, weight float64, patterns []string) {
		train, val, err := trainSplit(cfg, patterns)
		var files data.Found
		if err == nil {
			files, err = data.Find(train)
		}
		if err != nil {
			errs = append(errs, failed(cfg, key, err))
		}
		f.parts, splits = append(f.parts, &part{name: name, weight: weight, files: files.Files}), append(splits, val...)
		names = append(names, files.All())
	}
	for i, s := range cfg.Data.Source {
		add(sourceKey(i), s.Name, s.Weight, s.Files)
	}
	if len(cfg.Data.Source) == 0 {
		add("data.train", "", 1, cfg.Data.Train)
	}
	valKey := "data.val"
	patterns := cfg.Data.Val
	if len(patterns) > 0 {
		f.val, err = filesOfSet(cfg, patterns)
	} else if len(splits) > 0 {
		valKey = "data.train"
		f.val, err = data.Files(splits)
	}
	if err != nil {
		errs = append(errs, failed(cfg, valKey, err))
	}
	held := f.val
	for i, e := range cfg.Eval {
		files, err := filesOfSet(configOf(cfg, e), e.Files)
		if err != nil {
			errs = append(errs, failed(cfg, plan.EvalKey(i), err))
		}
		held = slices.Concat(held, files)
	}
	if len(errs) > 0 {
		return f, joinOnce(errs)
	}
	for i, p := range f.parts {
		key := "data.train"
		if p.name != "" {
			key = sourceKey(i)
		}
		_, both, err := data.Exclude(names[i], held)
		if err != nil {
			return f, cfg.Errorf(key, "%w", unreadable(err))
		}
		f.excluded = append(f.excluded, both...)
		if p.files = without(p.files, both); len(p.files) == 0 {
			return f, cfg.Errorf(key, "%s also matches every file of %s, so there is nothing to train on: %s", HeldBy(cfg), key, Listed(both))
		}
	}
	return f, nil
}

// failed returns an error of a key, unless it is one of another key, such as data.eval_split.
func failed(cfg *config.Config, key string, err error) error {
	if of := new(config.Error); errors.As(err, &of) {
		return err
	}
	return cfg.Errorf(key, "%w", unreadable(err))
}

// joinOnce joins errors, each text once: several folders may lack the same split.
func joinOnce(errs []error) error {
	said := make(map[string]bool)
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool {
		was := said[err.Error()]
		said[err.Error()] = true
		return was
	})...)
}

// trainSplit replaces each folder that is laid out like a dataset by the files of data.split. val are the files of the folders' splits to
// validate on, if they are the main validation set.
func trainSplit(cfg *config.Config, patterns []string) (files, val []string, err error) {
	if !cfg.Documents() {
		return patterns, nil, nil
	}
	validates := len(cfg.Data.Val) == 0 && cfg.HasMainSet() && (cfg.Data.EvalSplit != "" || !cfg.IsSet("data.val_fraction"))
	for _, p := range patterns {
		d, err := findDataset(cfg, p)
		switch {
		case err != nil:
			return nil, nil, err
		case d != nil:
		case cfg.IsSet("data.split") && cfg.Data.Split != data.SplitTrain:
			return nil, nil, cfg.Errorf("data.split", "%q, but %s is not a folder with splits: the names of its files name none",
				cfg.Data.Split, data.Plain(p))
		default:
			files = append(files, p)
			continue
		}
		mine, err := d.Split(cfg.Data.Split)
		if err != nil && cfg.IsSet("data.split") {
			err = cfg.Errorf("data.split", "%w", err)
		}
		if err != nil {
			return nil, nil, err
		}
		if files = append(files, mine...); !validates {
			continue
		}
		of, err := evalSplit(cfg, d)
		if err != nil {
			return nil, nil, err
		}
		val = append(val, of...)
	}
	return files, val, nil
}

// filesOfSet returns the files of a validation set. Of a folder that is laid out like a dataset they are those of its split to validate
// on: evalSplit, else the one named test, else train.
func filesOfSet(cfg *config.Config, patterns []string) ([]string, error) {
	if !cfg.Documents() {
		return data.Files(patterns)
	}
	var names []string
	for _, p := range patterns {
		d, err := findDataset(cfg, p)
		if err != nil {
			return nil, err
		}
		if d == nil {
			names = append(names, p)
			continue
		}
		of, err := evalSplit(cfg, d)
		if err != nil {
			return nil, err
		}
		for _, name := range []string{data.SplitTest, data.SplitTrain} {
			if of == nil {
				of = d.Splits[name]
			}
		}
		names = append(names, of...)
	}
	return data.Files(names)
}

// findDataset is data.FindDataset with the configuration's subset.
func findDataset(cfg *config.Config, dir string) (*data.Dataset, error) {
	return data.FindDataset(dir, cfg.Data.Subset)
}

// evalSplit returns the files of the split to validate on: data.eval_split, or the one named validation, if there is one.
func evalSplit(cfg *config.Config, d *data.Dataset) ([]string, error) {
	if cfg.Data.EvalSplit != "" {
		files, err := d.Split(cfg.Data.EvalSplit)
		if err != nil {
			err = cfg.Errorf("data.eval_split", "%w", err)
		}
		return files, err
	}
	if cfg.Data.Split == data.SplitValidation {
		return nil, nil
	}
	return d.Splits[data.SplitValidation], nil
}

// findParts returns the parts of the data with their files, and the files to validate on.
func (c *Data) findParts(cfg *config.Config) (parts []*part, val []string, err error) {
	f, err := findFiles(cfg)
	c.Excluded = f.excluded
	return f.parts, f.val, err
}
