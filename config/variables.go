package config

import (
	"regexp"
	"slices"
)

var variableUse = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)`)

// Variables are the names of the environment variables that texts of a configuration may use, each once.
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
