package bits

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// recordedKernels are the paths of the CPU that make the same sums in the same order: of those
// that a machine has, the last one is what TestRecorded takes.
var recordedKernels = []string{"avx512", "avx2", "neon"}

// TestRecorded: the figures of small runs are, to the last bit, those that AVX2 once gave,
// whatever the architecture. Differences in them are either meant, and then belong in the
// changelog and are recorded again with -update, or a bug.
func TestRecorded(t *testing.T) {
	path := ""
	for _, p := range recordedKernels {
		if slices.Contains(cpu.Paths(), p) {
			path = p
		}
	}
	if path == "" {
		t.Skipf("this machine has none of the kernels %v", recordedKernels)
	}
	for name, sets := range map[string][]string{
		"gpt2":          {"model.family=gpt2", "model.dropout=0"},
		"gpt2_dropout":  {"model.family=gpt2"},
		"gpt2_bfloat16": {"model.family=gpt2", "device.dtype=bfloat16"},
		"llama":         {"model.family=llama", "model.kv_heads=2"},
		"qwen3_window":  {"model.family=qwen3", "model.kv_heads=2", "model.head_dim=10", "model.window=6"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			testrun.Train(t, out, slices.Concat(sets, []string{"device.kernels=" + path})...)
			var lines []string
			for _, r := range testrun.Records(t, out) {
				lines = append(lines, testrun.Figures(r)+"\n")
			}
			golden := filepath.Join("testdata", "recorded", name+".txt")
			if *update {
				if path != "avx2" {
					t.Fatalf("only avx2 is recorded, this machine would take %s", path)
				}
				if err := os.WriteFile(golden, []byte(strings.Join(lines, "")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
			want[len(want)-1] += "\n"
			if len(lines) != len(want) {
				t.Fatalf("%d records, %d were recorded", len(lines), len(want))
			}
			for i, line := range lines {
				if line != want[i] {
					t.Fatalf("%s differs from what was recorded:\nwant %sgot  %s", path, want[i], line)
				}
			}
		})
	}
}
