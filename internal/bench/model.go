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

// Models lists the names of the models that the package contains.
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

// ModelConfig returns the configuration of one of Models with the given keys set.
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

// SizesOnly sets the required data keys of a configuration of which only the sizes matter.
var SizesOnly = []string{"data.train=[\"-\"]", "data.format=uint16", "data.tokenizer=bytes"}

// bytesVocab is the vocabulary size of the byte tokenizer, for a configuration that has none.
const bytesVocab = 256

// sizes returns the sizes of a configuration's model.
func sizes(c *config.Config) stages.Config {
	m := c.Model
	vocab := m.Vocab
	if vocab == 0 {
		vocab = bytesVocab
	}
	own := stages.Config{Family: m.Family, Layers: m.Layers, Hidden: m.Hidden, Heads: m.Heads, KVHeads: m.KVHeads, FFN: m.FFN,
		Context: m.Context, Vocab: vocab, Dropout: m.Dropout, Tie: m.TieEmbeddings, RopeTheta: m.RopeTheta, HeadDim: m.HeadDim, Window: m.Window}
	own.SetDefaults()
	return own
}
