package stages

// language is a family of language models. Its own file, family_NAME.go, says all that sets
// it apart; FAMILIES.md tells how to add one.
type language interface {
	// name is model.family's, and config.json's model_type.
	name() string
	// class is the class of transformers that computes the same.
	class() string
	// check says which of the sizes the family can't have. What holds for all families was
	// checked before.
	check(c Config) error
	// build lists the layers, under the names of the family's published files.
	build(m *Model)
	// keys are the rules for a config.json's keys, with the defaults that it counts on.
	keys(r *reading) rules
	// read takes from those keys what is in no other family's Config.
	read(r *reading, c *Config) error
	// write fills in a config.json.
	write(c Config, h *hfWritten)
	// gated reports whether the feed-forward part has a gate, and so three products.
	gated() bool
}

// languages are all families of language models, in the order in which messages name them.
func languages() []language {
	return []language{gpt2Family{}, llamaFamily{}, mistralFamily{}, qwen2Family{}, qwen3Family{}}
}

// languageOf is the family of that name, or nil.
func languageOf(name string) language {
	for _, f := range languages() {
		if f.name() == name {
			return f
		}
	}
	return nil
}

// LanguageFamilies are the names of the families of language models.
func LanguageFamilies() (names []string) {
	for _, f := range languages() {
		names = append(names, f.name())
	}
	return names
}
