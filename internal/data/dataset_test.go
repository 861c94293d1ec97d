package data

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFindDataset(t *testing.T) {
	const card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: data/a-*\n  - split: held\n    path:\n    - b.jsonl\n" +
		"- config_name: de\n  data_dir: de\n---\n# x\n"
	for name, c := range map[string]struct {
		files  string // names; NAME=TEXT gives a content
		subset string
		want   string // splits with their files, or a part of the error; "": not a dataset
	}{
		"shards": {"data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet data/test-00000-of-00001.parquet README.md .gitattributes", "", "test: data/test-00000-of-00001.parquet | train: data/train-00000-of-00002.parquet data/train-00001-of-00002.parquet"},
		"own splits": {"data/train_sft-00000-of-00001-abc.parquet data/test_sft-00000-of-00001-abc.parquet", "",
			"test_sft: data/test_sft-00000-of-00001-abc.parquet | train_sft: data/train_sft-00000-of-00001-abc.parquet"},
		"lines":       {"train.jsonl dev.jsonl.gz", "", "train: train.jsonl | validation: dev.jsonl.gz"},
		"folders":     {"train/a.json valid/b.json testing/c.json", "", "test: testing/c.json | train: train/a.json | validation: valid/b.json"},
		"plain":       {"a.jsonl b.jsonl", "", ""},
		"one table":   {"a.parquet", "", "train: a.parquet"},
		"with README": {"a.jsonl README.md", "", "train: a.jsonl"},
		"text":        {"a.txt README.md", "", ""},
		"card": {"data/a-1.parquet data/a-2.parquet b.jsonl c.jsonl de/train.jsonl README.md=" + card, "",
			"held: b.jsonl | train: data/a-1.parquet data/a-2.parquet"},
		"subset":    {"data/a-1.parquet b.jsonl de/train.jsonl README.md=" + card, "de", "train: de/train.jsonl"},
		"no subset": {"data/a-1.parquet b.jsonl README.md=" + card, "fr", `no subset "fr"; its subsets are "default", "de"`},
		"ambiguous": {"en/train-00000-of-00001.parquet de/train-00000-of-00001.parquet", "", "shards in several folders, such as de and en"},
		"folder":    {"en/train-00000-of-00001.parquet de/train-00000-of-00001.parquet", "de", "train: de/train-00000-of-00001.parquet"},
		"outside":   {"README.md=---\nconfigs:\n- config_name: a\n  data_files: ../x.jsonl\n---\n", "", "outside the folder"},
		"saved":     {"dataset_dict.json train/data-00000-of-00001.arrow", "", "save_to_disk"},
		"bad card":  {"README.md=---\nconfigs: [\n---\n", "", "README.md"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			rest := c.files
			for rest != "" {
				file, after, _ := strings.Cut(rest, " ")
				text := "{}\n"
				if before, _, ok := strings.Cut(file, "="); ok { // the last one
					file, text, after = before, rest[len(before)+1:], ""
				}
				rest, file = after, filepath.Join("d", filepath.FromSlash(file))
				if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
					t.Fatal(err)
				}
				write(t, file, []byte(text))
			}
			d, err := FindDataset("d", c.subset)
			got := ""
			switch {
			case err != nil:
				got = err.Error()
			case d != nil:
				var all []string
				for _, split := range slices.Sorted(maps.Keys(d.Splits)) {
					text := split + ":"
					for _, f := range d.Splits[split] {
						text += " " + strings.TrimPrefix(filepath.ToSlash(f), "d/")
					}
					all = append(all, text)
				}
				got = strings.Join(all, " | ")
			}
			if got != c.want && (c.want == "" || err == nil || !strings.Contains(got, c.want)) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	d := Dataset{Dir: "d", Splits: map[string][]string{"train": {"a"}, "validation": {"b"}}}
	if _, err := d.Split("held"); err == nil || !strings.Contains(err.Error(), `no split "held"; its splits are "train", "validation"`) {
		t.Errorf("%v", err)
	}
	if files, err := d.Split("dev"); err != nil || files[0] != "b" {
		t.Errorf("%v, %v", files, err)
	}
}

// FuzzCard: no README.md panics, and none names files outside the folder.
func FuzzCard(f *testing.F) {
	for _, text := range []string{
		"---\nconfigs:\n- config_name: a\n  data_files: x.jsonl\n---\n",
		"---\nconfigs:\n- data_files:\n  - split: train\n    path: [a, b]\n---\n",
		"---\nconfigs:\n- data_dir: ../..\n  data_files: [x]\n---\n", "---\na: &a [*a]\nconfigs: *a\n---\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		t.Chdir(t.TempDir())
		if err := os.Mkdir("d", 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join("d", "x.jsonl"), []byte("{}\n"))
		write(t, "x.jsonl", []byte("{}\n"))
		write(t, filepath.Join("d", "README.md"), text)
		d, err := FindDataset("d", "")
		if err != nil || d == nil {
			return
		}
		for _, files := range d.Splits {
			for _, name := range files {
				if !strings.HasPrefix(filepath.ToSlash(name), "d/") {
					t.Fatalf("%q is outside", name)
				}
			}
		}
	})
}
