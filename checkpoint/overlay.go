package checkpoint

import (
	"strings"

	"github.com/troupe-ml/troupe/internal/safetensors"
)

// Overlay lets tensors of the optimizer state take the place of the model's tensors: those with a prefix before the name of a tensor of
// the model. It returns how many. Model then returns them under the model's names.
func (c *Checkpoint) Overlay(prefix string) (replaced int) {
	for _, name := range c.optimizer.names {
		of, found := strings.CutPrefix(name, prefix)
		if _, has := c.model.fileOf[of]; found && has {
			c.model.fileOf[of] = renamed{c.optimizer.fileOf[name], prefix}
			replaced++
		}
	}
	return replaced
}

// renamed is a file whose tensors have names without their prefix.
type renamed struct {
	ModelFile
	prefix string
}

func (r renamed) Info(name string) (info safetensors.Info, ok bool) {
	return r.ModelFile.Info(r.prefix + name)
}
func (r renamed) Bytes(name string) ([]byte, error) { return r.ModelFile.Bytes(r.prefix + name) }

// Forget frees the memory of a tensor: see Tensors.Forget.
func (r renamed) Forget(name string) {
	if f, ok := r.ModelFile.(interface{ Forget(name string) }); ok {
		f.Forget(r.prefix + name)
	}
}
