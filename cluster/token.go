package cluster

import (
	"strings"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// ParseToken reads a token's text.
func ParseToken(text string) (Token, error) { return pki.ParseToken(strings.TrimRight(text, "\r\n")) }

// ReadTokenFile reads a token from a file, which nobody else may read.
func ReadTokenFile(path string) (Token, error) { return pki.ReadTokenFile(path) }

// WriteTokenFile writes a token into a file that nobody else may read.
func WriteTokenFile(path string, t Token) error { return pki.WriteTokenFile(path, t) }
