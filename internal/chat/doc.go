// Package chat renders conversations with the chat template of a model: a Jinja template in
// chat_template.jinja or tokenizer_config.json. The result is that of transformers'
// apply_chat_template.
//
// A template comes with a model and is untrusted. It sees the messages and the names of special
// tokens, but no files and no other templates. It always ends: what it may compute and write is
// limited. github.com/nikolalohinski/gonja parses a template and runs its statements. Expressions
// are computed here, as in Python (tree.go): operators, members, filters, tests, methods and
// printing.
//
// Everything unsupported is refused, by name and with the template's line: the filters
// filesizeformat, groupby, pprint, random, slice, striptags, truncate, urlencode, urlize, wordwrap
// and xmlattr; the tests escaped, filter and test; cycler, joiner and lipsum; methods without a
// call; printing generators; and integers beyond 64 bits. There is no Markup type: an escaped text
// is an ordinary text.
//
// The package knows no tokenizer, model or file.
package chat

import "errors"

var (
	// ErrTemplate: a template can't be parsed, or uses something unsupported.
	ErrTemplate = errors.New("chat template")
	// ErrRender: a template failed on a conversation, or refused it.
	ErrRender = errors.New("chat template failed")
	// ErrMessages: the input is not a list of messages.
	ErrMessages = errors.New("invalid chat messages")
)

// The limits of a template. Published templates have at most 20 KiB, and render a message in some
// dozens of steps.
const (
	MaxTemplateBytes = 128 << 10
	MaxInputBytes    = 16 << 20 // of all messages as JSON
	MaxOutputBytes   = 64 << 20
	MaxMessages      = 10_000
	maxSteps         = 300_000  // statements, iterations of loops and outputs of one rendering
	maxRange         = 10_000   // numbers in range()
	maxVariableBytes = 32 << 20 // bytes of a text in a variable
	maxMacroDepth    = 100
	maxNesting       = 100 // depth of brackets in one expression
	maxTimes         = 100 // x * 100: the largest number by which a text may be repeated
)
