package gpus

import "testing"

func TestNamed(t *testing.T) {
	for name, want := range map[string]string{"h100": "h100", "H200 NVL": "h200-nvl", " RTX-4090": "rtx-4090", "h300": ""} {
		if g, ok := Named(name); g.Name != want || ok != (want != "") {
			t.Errorf("%q: %+v, want %q", name, g, want)
		}
	}
}

// TestAll: names differ, and each figure is one of a data sheet's kind.
func TestAll(t *testing.T) {
	seen := make(map[string]bool)
	for _, g := range All {
		if seen[g.Name] {
			t.Errorf("%s stands twice", g.Name)
		}
		seen[g.Name] = true
		if g.BF16FLOPs < 1e14 || g.BF16FLOPs > 3e15 || g.FP32FLOPs > g.BF16FLOPs || g.BytesPerS < 5e11 || g.BytesPerS > 1e13 ||
			g.MemoryBytes < 16<<30 {
			t.Errorf("%+v", g)
		}
	}
}
