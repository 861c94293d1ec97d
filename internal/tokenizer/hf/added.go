package hf

import "errors"

// added is a token that is searched in a text before any other processing.
type added struct {
	id                         int32
	content                    string // text to find, normalized if the token is
	singleWord, lstrip, rstrip bool
	special                    bool
}

// finding finds added tokens: the first one in the text and, of several at the same place, the
// longest.
type finding struct {
	nodes []trieNode
	begin [256]bool // bytes with which a token begins
	list  []added
}

// trieNode has its children as a list: tokens are few.
type trieNode struct {
	child, sibling int32 // 0: none
	token          int32 // + 1
	b              byte
}

var errTwice = errors.New("two added tokens have the same content")

func (f *finding) add(a added) error {
	if a.content == "" {
		return errors.New("its content is empty after normalization")
	}
	if f.nodes == nil {
		f.nodes = []trieNode{{}}
	}
	at := int32(0)
	f.begin[a.content[0]] = true
	for i := range len(a.content) {
		next := f.child(at, a.content[i])
		if next == 0 {
			next = int32(len(f.nodes))
			f.nodes = append(f.nodes, trieNode{sibling: f.nodes[at].child, b: a.content[i]})
			f.nodes[at].child = next
		}
		at = next
	}
	if f.nodes[at].token != 0 {
		return errTwice
	}
	f.list = append(f.list, a)
	f.nodes[at].token = int32(len(f.list))
	return nil
}

func (f *finding) child(at int32, b byte) int32 {
	for c := f.nodes[at].child; c != 0; c = f.nodes[c].sibling {
		if f.nodes[c].b == b {
			return c
		}
	}
	return 0
}

// longest returns the longest token at the beginning of a text.
func (f *finding) longest(text []byte) (token, length int) {
	at := int32(0)
	for i, b := range text {
		if at = f.child(at, b); at == 0 {
			break
		}
		if n := f.nodes[at].token; n != 0 {
			token, length = int(n), i+1
		}
	}
	return token, length
}

// cut calls token for the tokens of a text and between for the text between them. With plain,
// special tokens are text. A token that is found but not taken still counts as found.
func (f *finding) cut(chars *table, text []byte, plain bool, token func(id int32, from, to int), between func(from, to int)) {
	done := 0  // everything before it was passed on
	blank := 0 // end of the white space after the last stripped token
	for at := 0; at < len(text) && f.nodes != nil; {
		if !f.begin[text[at]] {
			at++
			continue
		}
		n, length := f.longest(text[at:])
		if n == 0 {
			at++
			continue
		}
		from, to := at, at+length
		at = to
		a := &f.list[n-1]
		if plain && a.special {
			continue
		}
		if a.singleWord {
			if from > 0 {
				if p, _ := chars.last(text[:from]); p&propWord != 0 {
					continue
				}
			}
			if to < len(text) {
				if p, _ := chars.next(text[to:]); p&propWord != 0 {
					continue
				}
			}
		}
		if a.lstrip {
			for from > done {
				p, size := chars.last(text[:from])
				if p&propSpace == 0 {
					break
				}
				from -= size
			}
			from = max(from, done)
		}
		if a.rstrip {
			if to >= blank {
				blank = chars.run(text, to, propSpace, true)
			}
			to = blank
		}
		if done < from {
			between(done, from)
		}
		token(a.id, from, to)
		done = to
	}
	if done < len(text) {
		between(done, len(text))
	}
}
