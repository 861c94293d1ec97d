package hf

import "errors"

// added is a token that is found in a text before anything is made of it.
type added struct {
	id                         int32
	content                    string // as it is found: normalized, where it is
	singleWord, lstrip, rstrip bool
	special                    bool
}

// finding finds added tokens: the first, and of those that begin together the longest.
type finding struct {
	nodes []trieNode
	begin [256]bool // of a token
	list  []added
}

// trieNode has its children as a list: tokens are few.
type trieNode struct {
	child, sibling int32 // 0: none
	token          int32 // + 1
	b              byte
}

var errTwice = errors.New("two added tokens have this content")

func (f *finding) add(a added) error {
	if a.content == "" {
		return errors.New("its content is empty once it is normalized")
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

// cut calls token and text for the tokens of a text and for what is between them. plain:
// special tokens are text. All that is found counts as found, also what is then not taken.
func (f *finding) cut(chars *table, text []byte, plain bool, token func(id int32, from, to int), between func(from, to int)) {
	done := 0  // what is in front of it was given out
	blank := 0 // up to here is white space, from the last token that was stripped on
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
