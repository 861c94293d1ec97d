package life

import (
	"os"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

func TestMain(m *testing.M) {
	if sets := os.Getenv(childEnv); sets != "" {
		os.Exit(trainAsChild(strings.Split(sets, "\n")))
	}
	if dir := os.Getenv(tenRunsEnv); dir != "" {
		os.Exit(tenRuns(dir, os.Stdout))
	}
	testrun.Main(m)
}
