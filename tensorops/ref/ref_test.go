package ref_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/tensorops/optest"
	"github.com/troupe-ml/troupe/tensorops/ref"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOps(t *testing.T) {
	dev := ref.New()
	defer dev.Close()
	optest.Run(t, dev, optest.Options{})
}
