package otel

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports: a service that shows its runs links neither an exporter nor RPC.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".", "../prom", "../tensorboard").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		for _, no := range []string{"google.golang.org/grpc", "go.opentelemetry.io/otel/exporters/otlp", "go.opentelemetry.io/proto",
			"github.com/troupe-ml/troupe/cluster", "github.com/troupe-ml/troupe/cli", "github.com/spf13/"} {
			if strings.HasPrefix(pkg, no) {
				t.Errorf("%s is linked", pkg)
			}
		}
	}
}
