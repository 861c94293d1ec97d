package serve

import (
	"os"
	"os/exec"
	"testing"

	"github.com/troupe-ml/troupe/infer"
	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/stages"
)

// python returns the interpreter of make check-serve.
func python(t *testing.T) string {
	t.Helper()
	name := os.Getenv("TROUPE_PYTHON")
	if name == "" {
		t.Skip("set TROUPE_PYTHON to a Python with the package openai (make check-serve)")
	}
	return name
}

// serveModel serves a new model, and returns the server's URL.
func serveModel(t *testing.T, c stages.Config) string {
	t.Helper()
	dir := testrun.Directory(t, c, testrun.TensorsOf(t, c), nil)
	b, err := infer.OpenBatch(infer.ModelOptions{From: dir, ChatTemplate: "chatml"}, infer.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	address, stop := start(t, newServer(t, b, Options{Token: "0123456789abcdef"}))
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + address
}

func runClient(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), python(t), append([]string{"testdata/client.py"}, args...)...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// TestClient: the public openai client understands the server.
func TestClient(t *testing.T) {
	python(t)
	c := testrun.TinyModels["llama"]
	c.Context = 1024
	calls := newServer(t, &fake{pieces: []string{"<tool_call>{\"name\": \"weather\", ", "\"arguments\": {\"city\": \"Rome\"}}</tool_call>"}},
		Options{Name: "calls", Token: "0123456789abcdef"})
	address, stop := start(t, calls)
	defer func() { _ = stop() }()
	runClient(t, serveModel(t, c), "http://"+address)
}

// TestClients: eight clients at once get at least three times the tokens per second of one, from a model of 135 million parameters.
func TestClients(t *testing.T) {
	python(t)
	c := stages.Config{Family: stages.Llama, Layers: 30, Hidden: 576, Heads: 9, KVHeads: 3, FFN: 1536, Context: 2048, Vocab: 49152, Tie: true,
		RopeTheta: 100000}
	runClient(t, serveModel(t, c), "-", "48")
}
