package data

import (
	"testing"

	"github.com/troupe-ml/troupe/internal/testing/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }
