package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/telemetry"
)

// hostile would set a terminal's title, clear the screen, return to the start of the line, start one-character
// escapes, reverse the text, and print a message that looks like engine's.
const hostile = "\x1b]0;title\x07\x1b[2J\r\u009b2J\x7f\u202e\nengine: forged\nforged"

// hostileBytes is hostile with a byte that is not UTF-8, for file names.
const hostileBytes = hostile + "\x9b"

// TestHostileFiles: text from a file can neither steer the terminal nor look like a message of engine.
func TestHostileFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files can't have such names")
	}
	dir := workdir(t)
	tell := func(args ...string) (said string, status int) {
		t.Helper()
		cmd := exec.Command("engine", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if said, status := tell("run", "tiny.toml", "--quiet", "--set", "run.trace_every=3"); status != 0 {
		t.Fatal(said)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name string, text []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path(name)), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path(name), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(path(name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	quoted, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	quoted = bytes.ReplaceAll(quoted, []byte("\x7f"), []byte(`\u007f`)) // TOML allows only the escaped form
	const step = "runs/tiny/checkpoints/step-00000006"
	// model makes a folder of the run's model, with one file changed.
	models := 0
	model := func(name string, change func(text []byte) []byte) string {
		models++
		to := fmt.Sprint("model", models)
		for _, file := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
			text := read(filepath.Join(step, file))
			if file == name {
				text = change(text)
			}
			write(filepath.Join(to, file), text)
		}
		return to
	}
	replace := func(name, old string, new []byte) string {
		return model(name, func(text []byte) []byte {
			if !bytes.Contains(text, []byte(old)) {
				t.Fatalf("%s has no %s", name, old)
			}
			return bytes.Replace(text, []byte(old), new, 1)
		})
	}
	// run makes a copy of the run, with one file of its folder changed.
	run := func(name string, text []byte) string {
		models++
		to := fmt.Sprint("run", models)
		if err := os.CopyFS(path(to), os.DirFS(path("runs/tiny"))); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(path(filepath.Join(to, name))); err != nil {
			t.Fatal(err)
		}
		write(filepath.Join(to, name), text)
		return to
	}
	header := func(text string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	}
	trace := func(change func(map[string]any)) string {
		lines := bytes.SplitAfter(read("runs/tiny/trace.jsonl"), []byte("\n"))
		var line map[string]any
		if err := json.Unmarshal(lines[0], &line); err != nil {
			t.Fatal(err)
		}
		change(line)
		text, err := json.Marshal(line)
		if err != nil {
			t.Fatal(err)
		}
		return run("trace.jsonl", append(text, '\n'))
	}
	inCheckpoint := "checkpoints/step-00000006/"

	write("table.csv", []byte("0F0,"+strings.ReplaceAll(hostile, "\n", "\v")+",0B0\n"))
	write("rows.csv", []byte("0F0,0B0\n"+hostile))
	write("hostile.toml", []byte("[run]\nout = "+string(quoted)+"\n[data]\ntrain = ["+string(quoted)+"]\n"+string(quoted)+" = 1\n"))
	write("raw.toml", []byte("[run]\nname = \"\u009b2J\u202e\"\n\u009b = 1\n"))
	write("costs.json", fmt.Appendf(nil, `{"batches":[{"microbatch":2,"layers":{%s:{"forward_ms":-1}}}],"shares":[1]}`, quoted))
	write("kernels.json", fmt.Appendf(nil, `{"kernels":%s,"batches":[{"microbatch":2}],"shares":[1]}`, quoted))
	name := strings.ReplaceAll(hostileBytes, "/", "")
	write("empty/"+name+".txt", nil)
	write("latin/"+name+".txt", []byte("\xe4"))
	write("odd/"+name+".bin", []byte("odd"))
	write(name+".csv", read("rows.csv"))
	locked := run(".lock", nil)
	lock, err := checkpoint.LockDir(path(locked))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Unlock() }()
	write(locked+"/.lock", []byte("pid 1 since "+hostile+"\n"))

	for _, c := range []struct {
		name string
		args []string
		says string // it has come to what is hostile
	}{
		{"a tokenizer's part", []string{"generate", "--from", replace("tokenizer.json", `"ByteLevel"`, quoted)},
			"pre_tokenizer: unsupported tokenizer: unknown type"},
		{"a tokenizer's value", []string{"generate", "--from", replace("tokenizer.json", `"1.0"`, quoted)}, "tokenizer: version"},
		{"a tokenizer's value in lines", []string{"generate", "--from", replace("tokenizer.json", `"1.0"`,
			[]byte("{\n\"\u009b\u202e\x7f\":\n1}"))}, "tokenizer: version"},
		{"a tokenizer's type", []string{"generate", "--from", replace("tokenizer.json", `"BPE"`, quoted)},
			"model: unsupported tokenizer: the type is"},
		{"a tokenizer's merge", []string{"generate", "--from", replace("tokenizer.json", `"merges": []`,
			[]byte(`"merges": [`+string(quoted)+"]"))}, "merge 0"},
		{"a model's type", []string{"generate", "--from", replace("config.json", `"gpt2"`, quoted)}, "model_type"},
		{"a model's activation", []string{"eval", "--from", replace("config.json", `"gelu_new"`, quoted), "--data", "text.txt"},
			"activation_function"},
		{"a model's number", []string{"eval", "--from", replace("config.json", `"vocab_size": 256`, append([]byte(`"vocab_size": `), quoted...)),
			"--data", "text.txt"}, "vocab_size"},
		{"a tensor's name", []string{"generate", "--from", model("model.safetensors",
			func([]byte) []byte { return header(`{` + string(quoted) + `:{}}`) })}, "tensor"},
		{"a tensor's type", []string{"generate", "--from", model("model.safetensors", func([]byte) []byte {
			return header(`{"a":{"dtype":` + string(quoted) + `,"shape":[1],"data_offsets":[0,4]}}`)
		})}, "tensor"},
		{"a tensor's key", []string{"run", "tiny.toml", "--set", "run.out=new", "--set", "model.from=" +
			model("model.safetensors", func([]byte) []byte { return header(`{"a":{` + string(quoted) + `:1}}`) })}, "unknown key"},
		{"a table's cell", []string{"plan", "--table", "table.csv"}, "table.csv: row 1, column 2"},
		{"a table's rows", []string{"plan", "--table", "rows.csv"}, "rows.csv: row 2, column 1"},
		{"a table's name", []string{"run", "tiny.toml", "--set", fmt.Sprintf("pipeline.schedule=%s.csv", strings.TrimSuffix(name, "\x9b")),
			"--set", "run.out=new"}, "pipeline.schedule"},
		{"a configuration", []string{"config", "check", "hostile.toml"}, "hostile.toml:5:1"},
		{"a configuration with raw characters", []string{"config", "check", "raw.toml"}, "raw.toml"},
		{"a --set", []string{"config", "check", "tiny.toml", "--set", "run.name=" + hostile}, "--set"},
		{"a printed configuration", []string{"config", "print", "tiny.toml", "--set", "run.out=" + string(quoted)}, "out = "},
		{"a checked configuration", []string{"config", "check", "tiny.toml", "--set", "run.out=" + string(quoted)}, "output in"},
		{"costs", []string{"plan", "tiny.toml", "--layer-costs", "costs.json"}, "of layer"},
		{"costs' kernels", []string{"plan", "tiny.toml", "--layer-costs", "kernels.json"}, "not a valid name of kernels"},
		{"a trace's schedule", []string{"trace", trace(func(m map[string]any) { m["schedule"] = hostile })}, "measured: step 3"},
		{"a trace's schedule as HTML", []string{"trace", trace(func(m map[string]any) { m["schedule"] = hostile }), "--format", "html"},
			"measured: step 3"},
		{"a trace's table", []string{"trace", trace(func(m map[string]any) { m["table"] = "0F0," + hostile })}, "row 1, column 2"},
		{"a trace's worker", []string{"trace", trace(func(m map[string]any) {
			clocks := make([]telemetry.Clock, len(m["ms"].([]any)))
			for i := range clocks {
				clocks[i] = telemetry.Clock{Host: hostile, OffsetMS: 5000.25, UncertaintyMS: 0.125}
			}
			m["clocks"] = clocks
		})}, "5000.250 ± 0.125 ms ahead of the coordinator's; its times are corrected"},
		{"a trace's clocks", []string{"trace", trace(func(m map[string]any) { m["clocks"] = make([]telemetry.Clock, 9) })}, "clocks of 9 ranks"},
		{"a trace's number", []string{"trace", trace(func(m map[string]any) { m["step"] = hostile })}, "trace.jsonl: row 1"},
		{"a manifest's file", []string{"ckpt", "ls", run(inCheckpoint+"manifest.json",
			fmt.Appendf(nil, `{"format_version":1,"files":[{"name":%s}]}`, quoted))}, "DAMAGED"},
		{"a manifest's file, verified", []string{"ckpt", "verify", run(inCheckpoint+"manifest.json",
			fmt.Appendf(nil, `{"format_version":1,"files":[{"name":%s}]}`, quoted))}, "the file name"},
		{"a manifest's file as JSON", []string{"ckpt", "ls", "--json", run(inCheckpoint+"manifest.json",
			fmt.Appendf(nil, `{"format_version":1,"files":[{"name":%s}]}`, quoted))}, `"problem":"`},
		{"a file too many", []string{"ckpt", "verify", run(inCheckpoint+name, nil)}, "the manifest does not list it"},
		{"a file too many as JSON", []string{"ckpt", "verify", "--json", run(inCheckpoint+name, nil)}, `"file":"`},
		{"a pointer", []string{"ckpt", "ls", run("checkpoints/last", []byte(hostile))}, "points to"},
		{"a pointer to start from", []string{"generate", "--from", run("checkpoints/last", []byte(hostile))}, "points to"},
		{"a run's configuration", []string{"run", "tiny.toml", "--set", "run.out=" + run("config.toml", read("hostile.toml"))},
			"the stored configuration"},
		{"a run's trainer", []string{"ckpt", "ls", run(inCheckpoint+"trainer.json", quoted)}, "DAMAGED"},
		{"a lock", []string{"run", "tiny.toml", "--set", "run.out=" + locked}, "in use"},
		{"an empty file of a pattern", []string{"run", "tiny.toml", "--set", "data.train=empty/*.txt", "--set", "run.out=new"}, "has 0 bytes"},
		{"a file that is no text", []string{"run", "tiny.toml", "--set", "data.train=latin/*.txt", "--set", "data.tokenizer=chars", "--set",
			"run.out=new"}, "byte 0"},
		{"an odd file", []string{"eval", "--from", "runs/tiny", "--format", "uint16", "--data", "odd/*.bin"}, "3 bytes"},
		{"an output folder that is another's", []string{"run", "tiny.toml", "--set", "run.out=empty"}, "empty"},
		{"a run", []string{"run", "tiny.toml", "--set", "run.out=" + string(quoted)}, "done: step 6/6"},
		{"a run as JSON", []string{"run", "tiny.toml", "--json", "--set", "run.out=" + string(quoted)}, `"out":"`},
		{"a run's folder", []string{"ckpt", "verify", hostile}, "intact"},
		{"a run's folder as JSON", []string{"ckpt", "verify", "--json", hostile}, `"intact":true`},
		{"a run's folder, listed", []string{"ckpt", "ls", "--json", hostile}, `"dir":"`},
		{"a run's folder, evaluated", []string{"eval", "--from", hostile}, "perplexity"},
		{"a folder that is not there", []string{"ckpt", "verify", "no" + hostile}, "does not exist"},
		{"a flag", []string{"run", "--" + hostile}, "unknown flag"},
		{"an argument", []string{"run", "tiny.toml", hostile}, "unexpected argument"},
	} {
		t.Run(c.name, func(t *testing.T) {
			said, _ := tell(c.args...)
			if !strings.Contains(said, c.says) {
				t.Errorf("it does not say %q: %q", c.says, said)
			}
			if !utf8.ValidString(said) || strings.ContainsFunc(said, func(r rune) bool {
				return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
			}) {
				t.Errorf("it can steer a terminal: %q", said)
			}
			for line := range strings.Lines(said) {
				if strings.HasPrefix(line, "engine: forged") || strings.HasPrefix(line, "engine: engine:") || strings.HasPrefix(line, "forged") {
					t.Errorf("the line %q is forged: %q", line, said)
				}
			}
		})
	}
}
