package netlab

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if play := roles[os.Getenv(roleVariable)]; play != nil {
		play()
		return
	}
	goleak.VerifyTestMain(m)
}
