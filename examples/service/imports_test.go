package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImports: the service links no RPC, no cluster and no cluster's clients.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	all := strings.Fields(string(out))
	for _, pkg := range all {
		for _, no := range []string{"google.golang.org/grpc", "go.etcd.io/", "k8s.io/", "github.com/hashicorp/",
			"github.com/asynkron/protoactor-go/remote", "github.com/asynkron/protoactor-go/cluster", "github.com/troupe-ml/troupe/cluster",
			"github.com/troupe-ml/troupe/cli", "github.com/spf13/"} {
			if strings.HasPrefix(pkg, no) {
				t.Errorf("the service links %s", pkg)
			}
		}
	}
	t.Logf("%d packages", len(all))
}
