package hf

import "bytes"

// joinPieces puts a space in front of each token but the first, unless it has the prefix that marks what
// is inside of a word.
type joinPieces struct {
	next    decodePart
	prefix  []byte
	cleanup bool
	later   bool
	token   []byte
	out     [2][]byte
}

// cleanups are what the library's cleanup replaces in each token, in its order.
var cleanups = []replaceLiteral{
	{[]byte(" ."), []byte(".")},
	{[]byte(" ?"), []byte("?")},
	{[]byte(" !"), []byte("!")},
	{[]byte(" ,"), []byte(",")},
	{[]byte(" ' "), []byte("'")},
	{[]byte(" n't"), []byte("n't")},
	{[]byte(" 'm"), []byte("'m")},
	{[]byte(" do not"), []byte(" don't")},
	{[]byte(" 's"), []byte("'s")},
	{[]byte(" 've"), []byte("'ve")},
	{[]byte(" 're"), []byte("'re")},
}

func (j *joinPieces) text(part []byte) { j.token = append(j.token, part...) }

func (j *joinPieces) tokenEnd() {
	text := j.out[0][:0]
	switch rest, inside := bytes.CutPrefix(j.token, j.prefix); {
	case !j.later:
		text = append(text, j.token...)
	case inside:
		text = append(text, rest...)
	default:
		text = append(append(text, ' '), j.token...)
	}
	j.out[0] = text
	for i := 0; j.cleanup && i < len(cleanups); i++ {
		j.out[1] = cleanups[i].apply(nil, j.out[1][:0], j.out[0])
		j.out[0], j.out[1] = j.out[1], j.out[0]
	}
	j.next.text(j.out[0])
	j.next.tokenEnd()
	j.token, j.later = j.token[:0], true
}

func (j *joinPieces) end() { j.next.end() }
