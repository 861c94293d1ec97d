package gorgonia_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestOnlyWhereUsed: the command line and the facade don't carry Gorgonia.
func TestOnlyWhereUsed(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/troupe-ml/troupe/cmd/engine", "github.com/troupe-ml/troupe").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for pkg := range strings.Lines(string(out)) {
		if strings.HasPrefix(pkg, "gorgonia.org/") || strings.Contains(pkg, "stages/gorgonia") {
			t.Errorf("the command line imports %s", pkg)
		}
	}
}
