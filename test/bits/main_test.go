package bits

import (
	"flag"
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

var update = flag.Bool("update", false, "write the recorded figures again")

func TestMain(m *testing.M) { testrun.Main(m) }
