package bench

import (
	"embed"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/stages"
)

//go:embed models/*.toml
var models embed.FS

// Models names the models that come with the package.
func Models() []string {
	files, err := models.ReadDir("models")
	if err != nil {
		panic(err) // they are embedded
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".toml"))
	}
	return names
}

// ModelConfig is the configuration of one of Models, with some keys set.
func ModelConfig(name string, sets []string) (*config.Config, error) {
	if !slices.Contains(Models(), name) {
		return nil, fmt.Errorf("%w: unknown model %q; use one of %s", ErrInput, name, strings.Join(Models(), ", "))
	}
	text, err := models.ReadFile("models/" + name + ".toml")
	if err != nil {
		return nil, err
	}
	return config.Parse(name, text, sets, os.LookupEnv)
}

// SizesOnly are sets that stand in for the data which a configuration has to name,
// where only the sizes matter.
var SizesOnly = []string{"data.train=[\"-\"]", "data.format=uint16", "data.tokenizer=bytes"}

// bytesVocab is the vocabulary of a configuration that names none: that of the
// tokenizer of bytes.
const bytesVocab = 256

// sizes are those of a configuration's model.
func sizes(c *config.Config) stages.Config {
	m := c.Model
	vocab := m.Vocab
	if vocab == 0 {
		vocab = bytesVocab
	}
	return stages.Config{Family: m.Family, Layers: m.Layers, Hidden: m.Hidden, Heads: m.Heads, KVHeads: m.KVHeads, FFN: m.FFN,
		Context: m.Context, Vocab: vocab, Dropout: m.Dropout, Tie: m.TieEmbeddings, RopeTheta: m.RopeTheta, HeadDim: m.HeadDim, Window: m.Window}
}
