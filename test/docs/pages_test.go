//go:build unix && !race

package docs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/troupe-ml/troupe/config"
)

// TestPages does what the blocks of each document say, from top to bottom, in a folder of the page.
func TestPages(t *testing.T) {
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			p := newPage(t)
			for _, f := range fences(t, page) {
				p.block(t, f)
			}
		})
	}
}

// page is the folder of a document.
type page struct {
	*shell
	dir    string
	output string // of the last block of commands
}

// small is the config that keys of a document are merged over.
const small = `
[run]
steps = 4

[model]
layers = 4
hidden = 16
heads = 4
context = 16

[data]
train = ["small.txt"]

[batch]
sequences = 8
microbatch = 2

[optimizer]
warmup_steps = 2

[pipeline]
stages = 2
`

func newPage(t *testing.T) *page {
	t.Helper()
	dir := t.TempDir()
	examples, err := filepath.Abs(filepath.Join(root, "examples"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(examples, filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	p := &page{shell: newShell(t, dir), dir: dir}
	p.write(t, "small.txt", strings.Repeat("Stages send activations to each other, and gradients back.\n", 100))
	return p
}

// write writes a file into the page's folder.
func (p *page) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(p.dir, name)
	if !filepath.IsLocal(name) {
		t.Fatalf("%s is not in the page's folder", name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// block does what a block says.
func (p *page) block(t *testing.T, f fence) {
	t.Helper()
	switch f.language() {
	case "toml":
		p.config(t, f)
	case "sh":
		p.commands(t, f)
	case "text":
		p.printed(t, f)
	case "go":
		if f.file() != "" {
			partOf(t, f)
		} // TestGo checks whole files
	default:
		if f.file() != "" {
			p.write(t, f.file(), f.text)
		}
	}
}

// config checks a config, or keys of one.
func (p *page) config(t *testing.T, f fence) {
	t.Helper()
	if name := f.file(); name != "" {
		p.write(t, name, f.text)
		checkConfig(t, f.String(), f.text)
		return
	}
	base := small
	if f.is("toml", "over") {
		text, err := os.ReadFile(filepath.Join(p.dir, f.info[2]))
		if err != nil {
			t.Errorf("%v: %v", f, err)
			return
		}
		base = string(text)
	}
	var keys map[string]any
	if err := toml.Unmarshal([]byte(f.text), &keys); err != nil {
		t.Errorf("%v: %v", f, err)
		return
	}
	text := merged(t, base, f.text)
	if _, files := keys["data"]; files || f.is("toml", "over") { // which need not be there
		checkConfig(t, f.String(), text)
		return
	}
	p.write(t, ".keys.toml", text)
	if out, err := p.exec(t, "engine", "config", "check", ".keys.toml", "--memory-gib", "1024"); err != nil {
		t.Errorf("%v: engine config check: %v\n%s\nof\n%s", f, err, out, text)
	}
}

// checkConfig checks the keys and values of a config.
func checkConfig(t *testing.T, place, text string) {
	t.Helper()
	environment := func(string) (string, bool) { return "variable", true }
	if _, err := config.Parse(place, []byte(text), nil, environment); err != nil {
		t.Errorf("%v\nof\n%s", err, text)
	}
}

// merged puts the keys of one config over those of another.
func merged(t *testing.T, base, over string) string {
	t.Helper()
	var all, keys map[string]any
	for text, to := range map[string]*map[string]any{base: &all, over: &keys} {
		if err := toml.Unmarshal([]byte(text), to); err != nil {
			t.Fatal(err)
		}
	}
	if model, ok := keys["model"].(map[string]any); ok && model["family"] != nil {
		delete(all, "model") // another family has other keys
	}
	for section, value := range keys {
		old, isTable := all[section].(map[string]any)
		more, alsoTable := value.(map[string]any)
		if isTable && alsoTable {
			maps.Copy(old, more)
		} else {
			all[section] = value
		}
	}
	text, err := toml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// own are the examples whose configs name what their program registers: their own tests train by them.
var own = []string{"custom-layer", "encoder-decoder", "gorgonia-mlp", "own", "skip"}

// TestExampleConfigs checks the config of each example.
func TestExampleConfigs(t *testing.T) {
	found, err := filepath.Glob(filepath.Join(root, "examples/*/*.toml"))
	if err != nil || len(found) < 8 {
		t.Fatalf("%d configs were found: %v", len(found), err)
	}
	for _, path := range found {
		path = within(t, path)
		registers := false
		for _, name := range own {
			registers = registers || strings.HasPrefix(path, "examples/"+name+"/")
		}
		if !registers {
			checkConfig(t, path, read(t, path))
			continue
		}
		tests, err := filepath.Glob(filepath.Join(root, filepath.Dir(path), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		tested := false
		for _, file := range tests {
			tested = tested || strings.Contains(read(t, within(t, file)), filepath.Base(path))
		}
		if !tested {
			t.Errorf("%s: no test beside it reads it", path)
		}
	}
}

// TestTemplate checks what engine init writes.
func TestTemplate(t *testing.T) { checkConfig(t, "engine init", string(config.Template())) }

// exec runs a program in the page's folder and returns what it prints.
func (p *page) exec(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = p.dir, p.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}
