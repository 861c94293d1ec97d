package stages

// language is a family of language models. Its file, family_NAME.go, contains all that is specific
// to it; FAMILIES.md explains how to add one.
type language interface {
	// name is the value of model.family and of config.json's model_type.
	name() string
	// class is the class of transformers that computes the same.
	class() string
	// check refuses sizes that the family can't have. Rules that hold for all families were checked
	// before.
	check(c Config) error
	// build lists the layers, under the names of the family's published files.
	build(m *Model)
	// keys returns the rules for the keys of a config.json, with the family's defaults.
	keys(r *reading) rules
	// read takes the values that only this family has in its Config.
	read(r *reading, c *Config) error
	// write fills in a config.json.
	write(c Config, h *hfWritten)
	// gated reports whether the feed-forward part has a gate and so three products.
	gated() bool
}

// languages returns all families of language models, in the order in which messages name them.
func languages() []language {
	return []language{gpt2Family{}, llamaFamily{}, mistralFamily{}, qwen2Family{}, qwen3Family{}}
}

// languageOf returns the family with the given name, or nil.
func languageOf(name string) language {
	for _, f := range languages() {
		if f.name() == name {
			return f
		}
	}
	return nil
}

// LanguageFamilies returns the names of the families of language models.
func LanguageFamilies() (names []string) {
	for _, f := range languages() {
		names = append(names, f.name())
	}
	return names
}
