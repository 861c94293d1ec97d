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
