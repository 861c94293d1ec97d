package grid

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

// arm64Tests are what TestARM64 runs: a package, the part of its tests that fits in a minute
// with the others, and what make check-arm64 runs.
var arm64Tests = []struct{ dir, short, long string }{
	{"tensorops/cpu/internal/vec", `TestRecorded$|Border$|TestEnds$|TestLanes|TestBF16|TestKeep|TestRoPE|TestAgainstFloat64/neon`, `.`},
	{"tensorops/cpu/internal/gemm", `TestRecorded$|TestDirect|TestPackHalf/neon|TestMultiplyAtBorders/neon`, `.`},
	{"tensorops/cpu/internal/attn", `TestRecorded$|TestAttention/neon/(1|6|17|33)\+[06]×(1|16)$`, `.`},
	{"tensorops/cpu", `TestOps/neon/cases/^(add|adamw|gelu|layer_norm|rms_norm|rope|sgd|swiglu)$|TestOps/neon/cases/matmul/NN/odd|TestSums`,
		`TestOps|TestGemm|TestSums`},
	{"test/bits", `TestRecorded/(gpt2_dropout|llama)$`, `TestRecorded$`},
}

// TestARM64 runs tests of what is written for arm64 by an emulator of it: of the kernels, of the
// device's operations, and small runs whose figures are those of amd64 to the bit.
func TestARM64(t *testing.T) {
	if runtime.GOARCH == "arm64" {
		t.Skip("this is arm64: the tests run as they are")
	}
	if os.Getenv("TROUPE_ARM64") == "" {
		t.Skip("make check-arm64 runs it: half a minute, or more with TROUPE_LONG_TESTS")
	}
	if testrun.RaceDetector {
		t.Skip("the emulated tests are built without the race detector")
	}
	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil {
		if qemu, err = exec.LookPath("qemu-aarch64"); err != nil {
			t.Skip("no qemu-aarch64 here (Debian: qemu-user-static): the kernels for arm64 are not tested")
		}
	}
	for _, test := range arm64Tests {
		t.Run(strings.ReplaceAll(test.dir, "/", "_"), func(t *testing.T) {
			pattern, limit := test.short, 5*time.Minute // for what a minute is plenty of, on a busy machine
			if testrun.Long {
				pattern, limit = test.long, 20*time.Minute
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			binary := filepath.Join(t.TempDir(), "arm64.test")
			build := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "nocuda", "-o", binary, ".")
			build.Dir = test.dir
			build.Env = append(os.Environ(), "GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", build, err, out)
			}
			run := exec.CommandContext(ctx, qemu, binary, "-test.v", "-test.run", pattern)
			run.Dir = test.dir
			out, err := run.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %v\n%s", run, err, out[max(0, len(out)-20_000):])
			}
			passed := bytes.Count(out, []byte("--- PASS: "))
			if passed == 0 {
				t.Fatalf("%v: no test ran\n%s", run, out)
			}
			t.Logf("%d tests passed", passed)
		})
	}
}
