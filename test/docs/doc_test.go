//go:build unix && !race

// Package docs tests the documents: README.md, docs/*.md and the README.md of each example. The
// first line of a fenced block says what the test does with it; fences_test.go has the list. Links
// are checked in all Markdown files of the repository, and the config of each example is parsed.
package docs
