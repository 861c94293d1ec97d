package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// limited is a coordinator with limits on what operators may submit.
func limited(s Submissions, dir string) *Coordinator {
	return &Coordinator{cfg: Config{Dir: dir, Submissions: s}}
}

// TestSubmissionRoots: a file outside the roots is refused for every key, whatever path leads there, and the error does not
// reveal the file's content or whether it exists. Files in the roots are allowed.
func TestSubmissionRoots(t *testing.T) {
	top := t.TempDir()
	root, other, own := filepath.Join(top, "root"), filepath.Join(top, "other"), filepath.Join(top, "root", "state")
	const secret = "root:$6$topsecret:19000:0:99999"
	for _, f := range []string{"root/data/a.csv", "root/data/b.csv", "root/model/config.json", "root/state/worker.token",
		"root/state/authority/a.csv", "other/s.csv", "other/t.json"} {
		path := filepath.Join(top, f)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"root/link.csv": "other/s.csv", "root/folder": "other",
		"root/model-with-link/config.json": "other/t.json", "root/inner.csv": "root/data/a.csv",
		"root/dangling": "other/new", "root/globbed/x.csv": "other/s.csv", "root/to-state": "root/state"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, link)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(top, to), filepath.Join(top, link)); err != nil {
			t.Skip(err)
		}
	}
	t.Chdir(root)
	keys := map[string]string{"run.out": "%q", "model.from": "%q", "data.train": "[%q]", "data.val": "[%q]", "data.tokenizer": "%q",
		"data.labels": "[%q]", "data.val_labels": "[%q]", "pipeline.schedule": "%q"}
	for path, inside := range map[string]bool{
		filepath.Join(other, "s.csv"): false, filepath.Join(other, "no-such.csv"): false, "/etc/no-such/x.csv": false, "../other/s.csv": false,
		"folder/../s.csv": false,
		"link.csv":        false, "folder/s.csv": false, "folder/no-such.csv": false, "dangling/x.csv": false, "state/worker.token.csv": false,
		filepath.Join(own, "authority", "a.csv"): false, "to-state/x.csv": false,
		"data/a.csv": true, "./data/b.csv": true, "inner.csv": true, "data/no-such.csv": true, filepath.Join(root, "data", "a.csv"): true,
	} {
		for key, form := range keys {
			path := path
			if key == "data.tokenizer" {
				path = strings.TrimSuffix(path, ".csv") + ".csv/tokenizer.json"
				if strings.HasSuffix(path, "inner.csv/tokenizer.json") {
					continue
				}
			}
			c, sets := limited(Submissions{Roots: []string{root}}, own), []string{key + "=" + fmt.Sprintf(form, path)}
			labels := strings.HasSuffix(key, "labels")
			if labels {
				sets = nil // they need a format, which is not what this is about
			}
			cfg, err := c.parse("c.toml", []byte("data.train = [\"data/a.csv\"]\n"), sets, nil, nil)
			if labels && err == nil {
				cfg.Data.Labels = []string{path}
				if key == "data.val_labels" {
					cfg.Data.Labels, cfg.Data.ValLabels = nil, []string{path}
				}
				err = c.cfg.Submissions.check(cfg, own)
			}
			outside := errors.Is(err, ErrOutside)
			if outside == inside || outside && !strings.Contains(err.Error(), "--root") {
				t.Errorf("%s = %s: %v", key, path, err)
			}
			if err != nil && strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%s = %s tells what the file holds: %v", key, path, err)
			}
		}
	}
	for key, form := range map[string]string{"model.from": "model-with-link", "data.train": "globbed/*.csv"} {
		value := fmt.Sprintf(keys[key], form)
		if _, err := limited(Submissions{Roots: []string{root}}, own).parse("c.toml", []byte("data.train = [\"data/a.csv\"]\n"),
			[]string{key + "=" + value}, nil, nil); !errors.Is(err, ErrOutside) {
			t.Errorf("%s = %s: %v", key, value, err)
		}
	}
	// What a pattern leads to counts, at any depth, and also where a path with special characters is meant as it stands.
	for link, to := range map[string]string{"root/deep/a/b/c.csv": "other/s.csv", "root/odd/x[1].csv": "other/s.csv",
		"root/odd/x1.csv": "root/data/a.csv"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, link)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(top, to), filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for pattern, inside := range map[string]bool{"deep/**/c.csv": false, "deep/**": false, "deep/*/*/c.csv": false, "odd/x[1].csv": false,
		"**/authority/a.csv": false, filepath.Join(root, "**"): false,
		"data/**": true, "data/**/a.csv": true, "odd/x1*": true} {
		_, err := limited(Submissions{Roots: []string{root}}, own).parse("c.toml", []byte(fmt.Sprintf("data.train = [%q]\n", pattern)), nil, nil,
			nil)
		if errors.Is(err, ErrOutside) == inside {
			t.Errorf("data.train = %s: %v", pattern, err)
		}
	}
	for _, pattern := range []string{"**/authority/a.csv", filepath.Join(top, "**"), filepath.Join(top, "*", "**", "a.csv"),
		filepath.Join(top, "**", "*.token")} {
		if _, err := limited(Submissions{}, own).parse("c.toml", []byte(fmt.Sprintf("data.train = [%q]\n", pattern)), nil, nil,
			nil); !errors.Is(err, ErrOutside) {
			t.Errorf("data.train = %s, without roots: %v", pattern, err)
		}
	}
	// Without roots any path will do, but for the coordinator's own folder.
	if _, err := limited(Submissions{}, own).parse("c.toml", []byte(fmt.Sprintf("data.train = [%q]\n", filepath.Join(other, "s.csv"))), nil,
		nil, nil); err != nil {
		t.Error(err)
	}
	if _, err := limited(Submissions{}, own).parse("c.toml", []byte("data.train = [\"state/worker.token\"]\n"), nil, nil, nil); !errors.Is(err,
		ErrOutside) {
		t.Errorf("the coordinator's own folder: %v", err)
	}
}

// TestSubmissionVariables: ${NAME} is the submitter's variable, and the coordinator's only if --env allows it.
func TestSubmissionVariables(t *testing.T) {
	t.Setenv("SUBMISSION_SECRET", "hunter2")
	t.Setenv("SUBMISSION_SHARED", "shared")
	for _, c := range []struct {
		use       string
		variables map[string]string
		want      string // of run.out; "": it is refused
	}{
		{"${SUBMISSION_SECRET}", nil, ""},
		{"${SUBMISSION_SECRET:-none}", nil, "none"},
		{"${SUBMISSION_SECRET}", map[string]string{"SUBMISSION_SECRET": "mine"}, "mine"},
		{"${SUBMISSION_SHARED}", nil, "shared"},
		{"${SUBMISSION_SHARED}", map[string]string{"SUBMISSION_SHARED": "mine"}, "shared"},
		{"${HOME}", nil, ""},
		{"${PATH}", map[string]string{"PATH": "mine"}, "mine"},
	} {
		cfg, err := limited(Submissions{Env: []string{"SUBMISSION_SHARED"}}, "").parse("c.toml", []byte("data.train = [\"a\"]\n"),
			[]string{"run.out=" + c.use}, nil, c.variables)
		switch {
		case c.want == "" && (err == nil || !strings.Contains(err.Error(), "--env")):
			t.Errorf("%s with %v: %v", c.use, c.variables, err)
		case c.want != "" && (err != nil || cfg.Run.Out != c.want):
			t.Errorf("%s with %v: %v", c.use, c.variables, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s tells the value: %v", c.use, err)
		}
	}
	if got := variablesOf("/configs/c.toml", []byte(`x = "${SUBMISSION_SECRET}/${NOT_SET_ANYWHERE}/${CONFIG_DIR}"`),
		[]string{"run.out=${SUBMISSION_SHARED:-x}"}); len(got) != 3 || got["CONFIG_DIR"] != "/configs" || got["SUBMISSION_SECRET"] != "hunter2" ||
		got["SUBMISSION_SHARED"] != "shared" {
		t.Errorf("a client sends %v", got)
	}
}

// TestSubmissionCollectors: telemetry.otlp may name only collectors that the coordinator was started with.
func TestSubmissionCollectors(t *testing.T) {
	for url, ok := range map[string]bool{"http://127.0.0.1:4318": true, "http://127.0.0.1:43180": false, "http://127.0.0.1:4318/x": false,
		"http://169.254.169.254": false} {
		_, err := limited(Submissions{Collectors: []string{"http://127.0.0.1:4318"}}, "").parse("c.toml", []byte("data.train = [\"a\"]\n"),
			[]string{"telemetry.otlp=" + url}, nil, nil)
		if (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "--otlp") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := limited(Submissions{Collectors: []string{}}, "").parse("c.toml", []byte("data.train = [\"a\"]\n"),
		[]string{"telemetry.otlp=http://127.0.0.1:4318"}, nil, nil); err == nil {
		t.Error("a collector is taken where there are none")
	}
}
