package data

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
)

// gzipped reads the members of a gzip file one after the other. Zeros after the last one are
// padding, which gzip and Python skip, too.
type gzipped struct {
	in     *bufio.Reader
	member *gzip.Reader
}

func openGzip(r io.Reader) (*gzipped, error) {
	in := bufio.NewReader(r)
	member, err := gzip.NewReader(in)
	if err != nil {
		return nil, err
	}
	member.Multistream(false)
	return &gzipped{in, member}, nil
}

func (g *gzipped) Read(p []byte) (n int, err error) {
	for {
		if n, err = g.member.Read(p); n > 0 || !errors.Is(err, io.EOF) {
			if errors.Is(err, io.EOF) {
				err = nil // the next call finds the end again
			}
			return n, err
		}
		if err := g.next(); err != nil {
			return 0, err
		}
	}
}

// next starts the next member. After padding there is none.
func (g *gzipped) next() error {
	padded := false
	for {
		b, err := g.in.ReadByte()
		if err != nil {
			return err
		}
		if b == 0 {
			padded = true
			continue
		}
		if err := g.in.UnreadByte(); err != nil {
			return err
		}
		if padded {
			return gzip.ErrHeader
		}
		if err := g.member.Reset(g.in); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		g.member.Multistream(false)
		return nil
	}
}
