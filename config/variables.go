package config

import (
	"regexp"
	"slices"
)

var variableUse = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)`)

// Variables returns the names of the environment variables in texts, such as a file and --set values, each once.
func Variables(texts ...string) (names []string) {
	for _, text := range texts {
		for _, m := range variableUse.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(names, m[1]) {
				names = append(names, m[1])
			}
		}
	}
	return names
}

// FolderVariable is the name of a variable that is the folder of the config file.
const FolderVariable = "CONFIG_DIR"

// withFolder adds the folder of a config file to the variables of an environment.
func withFolder(env func(string) (string, bool), folder string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == FolderVariable {
			return folder, true
		}
		return env(name)
	}
}

// noteUnset remembers which variables in a key's value are not set.
func (c *Config) noteUnset(key string, e entry, env func(string) (string, bool)) {
	for _, name := range Variables(e.text) {
		if _, set := env(name); !set {
			if c.unset == nil {
				c.unset = make(map[string][]string)
			}
			c.unset[key] = append(c.unset[key], name)
		}
	}
}

// Unset returns the variables in a key's value that are not set: the value has their fallback texts.
func (c *Config) Unset(key string) []string { return c.unset[key] }
