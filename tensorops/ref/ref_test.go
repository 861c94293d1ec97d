package ref_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestOps leaves out most products, which take half of the time: the devices' tests ask them of this one, too.
func TestOps(t *testing.T) {
	dev := ref.New()
	defer dev.Close()
	optest.Run(t, dev, optest.Options{Skip: func(c optest.Case) bool {
		return c.Kind == tensorops.KindMatMul && !strings.HasSuffix(c.Name, "/variants")
	}})
}
