package troupe_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// layers are the packages from the top down, as ARCHITECTURE.md draws them: a package may
// import what is below its layer, never what is beside or above it.
var layers = [][]string{
	{"internal/testing/documents", "internal/testing/exampletest", "internal/testing/netlab", "internal/testing/testrun"}, // of tests, which alone may import them
	{"cmd/engine", "stages/gorgonia/bench", "examples/cluster-service", "examples/custom-layer", "examples/encoder-decoder", "examples/gorgonia-mlp", "examples/own", "examples/skip", "examples/ushape"},
	{"cli"},
	{"internal/show/view"},
	{"cluster/discovery/dns", "cluster/discovery/etcd", "telemetry/otel/otlp"},
	{"cluster"},
	{"cluster/internal/apiwire", "cluster/internal/journal"},
	{"internal/forecast"},
	{"internal/bench", "examples/service"}, // which links no cluster
	{"ui"},
	{"telemetry/prom", "telemetry/otel", "telemetry/tensorboard"},
	{"."},
	{"internal/run/attempt"},
	{"internal/run/runlog"},
	{"infer"},
	{"internal/run/trained"},
	{"internal/run/corpus", "internal/run/feed", "internal/run/requests"},
	{"cluster/internal/mesh"},
	{"internal/show/report"},
	{"cluster/internal/arrange"},
	{"internal/plan"},
	{"internal/run/rundir"},
	{"internal/host/device"},
	{"internal/testing/faultfs", "internal/testing/crashfs"}, // of tests
	{"checkpoint"},
	{"internal/safetensors"},
	{"actors"},
	{"internal/run/trainstate", "telemetry/event", "telemetry/history"},
	{"telemetry"},
	{"config"},
	{"data/samples"},
	{"internal/host/folder", "internal/data"},
	{"stages/gorgonia"},
	{"stages/layertest"}, // of tests
	{"stages"},
	{"internal/chat", "internal/tokenizer"},
	{"internal/tokenizer/hf"},
	{"internal/show/draw", "internal/world"},
	{"scheduler"},
	{"internal/optest"},
	{"cluster/internal/groups/bench"},
	{"cluster/internal/groups"},
	{"p2p"},
	{"internal/collective"},
	{"tensorops/cpu", "tensorops/cuda", "tensorops/ref"},
	{"tensorops/cpu/internal/attn", "tensorops/cuda/internal/count", "tensorops/cuda/internal/ptxgen"},
	{"tensorops/cpu/internal/gemm", "tensorops/cpu/internal/vec", "tensorops/cuda/internal/driver", "tensorops/cuda/internal/standin", "tensorops/cuda/kernels"},
	{"tensorops/cpu/internal/guard"}, // of tests
	{"tensorops"},
	{"cluster/internal/lane/bench"},
	{"cluster/internal/locate"},
	{"cluster/internal/beat", "cluster/internal/lane", "cluster/internal/link", "cluster/internal/logring", "cluster/internal/members", "cluster/internal/pki", "cluster/internal/transport"},
	{"cluster/discovery", "cluster/internal/secure", "internal/grid", "internal/wire"},
	{"internal/base/caught", "internal/show/chart", "internal/base/clock", "internal/run/fanout", "internal/host/gpus", "internal/host/hostmem", "internal/base/registry", "internal/base/rng", "internal/base/strictjson", "internal/host/sysinfo", "internal/show/term"},
	{"internal/base/words"},
}

// TestLayers: no import goes up, and each package has its layer.
func TestLayers(t *testing.T) {
	const module = "github.com/troupe-ml/troupe"
	depth := make(map[string]int)
	for i, layer := range layers {
		for _, pkg := range layer {
			depth[pkg] = i
		}
	}
	seen := make(map[string]bool)
	err := filepath.WalkDir(".", func(file string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "testdata" || name == "asmgen" || name != "." && strings.HasPrefix(name, ".")):
			return fs.SkipDir // asmgen is a module of its own
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		pkg := filepath.ToSlash(filepath.Dir(file))
		seen[pkg] = true
		own, known := depth[pkg]
		if !known {
			t.Errorf("%s has no layer: give it one here and in ARCHITECTURE.md", pkg)
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil || imported != module && !strings.HasPrefix(imported, module+"/") {
				continue
			}
			below := path.Clean("." + strings.TrimPrefix(imported, module))
			if depth[below] <= own {
				t.Errorf("%s (layer %d) imports %s (layer %d)", file, own, below, depth[below])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg := range depth {
		if !seen[pkg] {
			t.Errorf("there is no package %s", pkg)
		}
	}
}
