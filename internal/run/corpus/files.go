package corpus

import (
	"errors"
	"fmt"
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
		train, val, err := expand(cfg, patterns, cfg.Data.Split, true)
		var files data.Found
		if err == nil {
			files, err = data.Find(train)
		}
		if err != nil {
			errs = append(errs, cfg.Errorf(key, "%w", unreadable(err)))
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
		patterns, _, err = expand(cfg, patterns, cfg.Data.EvalSplit, false)
	} else if len(splits) > 0 && (cfg.Data.EvalSplit != "" || !cfg.IsSet("data.val_fraction")) {
		valKey, patterns = "data.train", splits
	}
	if len(patterns) > 0 && err == nil {
		f.val, err = data.Files(patterns)
	}
	if err != nil {
		errs = append(errs, cfg.Errorf(valKey, "%w", unreadable(err)))
	}
	if len(errs) > 0 {
		return f, errors.Join(errs...)
	}
	evals, err := plan.EvalFiles(cfg)
	if err != nil {
		return f, unreadable(err)
	}
	held := slices.Concat(f.val, evals)
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

// expand replaces each folder that is laid out like a dataset by the files of a split. val are the files of its split to validate on. An
// empty split stands for that one, or for all files if there is none.
func expand(cfg *config.Config, patterns []string, split string, training bool) (files, val []string, err error) {
	if !cfg.Documents() {
		return patterns, nil, nil
	}
	for _, p := range patterns {
		d, err := data.FindDataset(p, cfg.Data.Subset)
		if err != nil {
			return nil, nil, err
		}
		if d == nil {
			if training && cfg.IsSet("data.split") && cfg.Data.Split != data.SplitTrain {
				return nil, nil, fmt.Errorf("data.split = %q, but %s is not a folder with splits: the names of its files name none", cfg.Data.Split,
					data.Plain(p))
			}
			files = append(files, p)
			continue
		}
		of, err := evalSplit(cfg, d)
		if err != nil {
			return nil, nil, err
		}
		if training {
			mine, err := d.Split(split)
			if err != nil {
				return nil, nil, err
			}
			files, val = append(files, mine...), append(val, of...)
			continue
		}
		if of == nil {
			for _, name := range []string{data.SplitTest, data.SplitTrain} {
				if of = d.Splits[name]; of != nil {
					break
				}
			}
		}
		files = append(files, of...)
	}
	return files, val, nil
}

// evalSplit returns the files of the split to validate on: data.eval_split, or the one named validation, if there is one.
func evalSplit(cfg *config.Config, d *data.Dataset) ([]string, error) {
	if cfg.Data.EvalSplit != "" {
		return d.Split(cfg.Data.EvalSplit)
	}
	files := d.Splits[data.SplitValidation]
	if cfg.Data.Split == data.SplitValidation {
		return nil, nil
	}
	return slices.Clone(files), nil
}

// findParts returns the parts of the data with their files, and the files to validate on.
func (c *Data) findParts(cfg *config.Config) (parts []*part, val []string, err error) {
	f, err := findFiles(cfg)
	c.Excluded = f.excluded
	return f.parts, f.val, err
}
