package checkpoint

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/internal/host/folder"
)

// The names of the files that Save writes itself.
const (
	modelName     = "model.safetensors"
	indexName     = "model.safetensors.index.json"
	partName      = "trained.safetensors" // of Content.Part
	optimizerName = "optimizer.safetensors"
	manifestName  = "manifest.json"
)

const (
	StoreName      = "checkpoints" // in a run's output folder
	stepPrefix     = "step-"
	tmpPrefix      = folder.TmpPrefix
	replacedSuffix = ".replaced"
	tensorsSuffix  = ".safetensors"
)

// fileName is the allow-list of names inside a checkpoint: no separator, no leading dot, and
// nothing that a shell or a foreign file system could misread.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func checkName(name string) error {
	if !fileName.MatchString(name) {
		return fmt.Errorf("the file name %s is not allowed in a checkpoint: use letters, digits, dots, dashes and underscores, at most 128",
			strictjson.Quote(name))
	}
	return nil
}

// isReserved reports whether Save uses the name itself.
func isReserved(name string) bool {
	return name == indexName || name == manifestName || strings.HasSuffix(name, tensorsSuffix)
}

func shardName(i, shards int) string {
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
}

func stepName(step int) string { return fmt.Sprintf("%s%08d", stepPrefix, step) }

// tmpName returns the name of an unfinished checkpoint; tag, if not empty, identifies its attempt.
func tmpName(step int, tag string) string {
	if tag != "" {
		tag = "-" + tag
	}
	return tmpPrefix + stepName(step) + tag
}

// parseStep reads a name made by stepName, and only such a name.
func parseStep(name string) (step int, ok bool) {
	step, err := strconv.Atoi(strings.TrimPrefix(name, stepPrefix))
	return step, err == nil && step >= 0 && name == stepName(step)
}
