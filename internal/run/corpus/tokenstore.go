package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"runtime/debug"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/data"
	"github.com/troupe-ml/troupe/internal/host/folder"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/tokenizer"
)

// TokenStore keeps the token ids of a run's texts in its folder, each file under the digest of
// all their sources, so that a resumed run does not tokenize again. Stored ids are read
// before the run starts; new ones are written after that, because only then the folder belongs to the run.
// The nil one keeps nothing. Bytes and characters are encoded as fast as they are read, and not kept.
type TokenStore struct {
	fs       checkpoint.FS
	used     map[string]bool
	made     []madeTokens
	Warnings []string
}

// madeTokens are to be written.
type madeTokens struct {
	name  string
	write func(io.Writer) error
}

// NewTokenStore keeps ids in a run's folder.
func NewTokenStore(f checkpoint.FS) *TokenStore {
	return &TokenStore{fs: f, used: make(map[string]bool)}
}

// kept reports whether a tokenizer's ids are worth a file.
func (s *TokenStore) kept(tok tokenizer.Tokenizer) bool {
	return s != nil && tok.Name() == tokenizer.HFName
}

// key is the digest of a text, a tokenizer, and more that decides its ids.
func (s *TokenStore) key(text *data.Text, tok tokenizer.Tokenizer, more any) (key data.StoredKey, err error) {
	file, err := tokenizer.Marshal(tok)
	if err != nil {
		return key, err
	}
	rest, err := json.Marshal(more)
	if err != nil {
		return key, fmt.Errorf("key of the token ids: %w", err)
	}
	// Another version of this program may tokenise otherwise.
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = info.Main.Version
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(version), file, rest} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	text.Hash(h)
	return data.StoredKey(h.Sum(nil)), nil
}

func storedName(key data.StoredKey) string {
	return path.Join(rundir.TokenDir, hex.EncodeToString(key[:])+rundir.TokenSuffix)
}

// corpus encodes a text, or takes its ids from the folder; fresh says that it has encoded it. plain: the names of
// special tokens are text.
func (s *TokenStore) corpus(text *data.Text, tok tokenizer.Tokenizer, plain bool) (c data.Corpus, fresh bool, err error) {
	encode, how := tok, "text"
	if !plain {
		encode, how = tokenizer.WithNames(tok), "text with names of tokens"
	}
	if !s.kept(tok) {
		c, err = text.Encode(encode)
		return c, true, err
	}
	key, err := s.key(text, tok, how)
	if err != nil {
		return nil, false, err
	}
	c, err = take(s, key, func(r io.Reader, size int64) (data.Corpus, error) {
		return data.ReadCorpus(r, size, key, tok.Vocab())
	}, func() (data.Corpus, error) {
		fresh = true
		return text.Encode(encode)
	}, func(w io.Writer, c data.Corpus) error {
		return data.WriteCorpus(w, key, tok.Vocab(), c)
	})
	return c, fresh, err
}

// documents reads and encodes documents, or takes them from the folder.
func (s *TokenStore) documents(text *data.Text, r *documentReader) ([]data.Document, error) {
	if !s.kept(r.tok) {
		return readDocuments(text, r)
	}
	key, err := s.key(text, r.tok, r.decides())
	if err != nil {
		return nil, err
	}
	return take(s, key, func(f io.Reader, size int64) ([]data.Document, error) {
		return data.ReadDocuments(f, size, key, r.tok.Vocab())
	}, func() ([]data.Document, error) {
		return readDocuments(text, r)
	}, func(w io.Writer, docs []data.Document) error {
		return data.WriteDocuments(w, key, r.tok.Vocab(), docs)
	})
}

// take reads a file of the folder. If there is none, it computes the content and remembers to write it.
// A file that cannot be read is treated like a missing one.
func take[T any](s *TokenStore, key data.StoredKey, read func(r io.Reader, size int64) (T, error), made func() (T, error),
	write func(io.Writer, T) error) (T, error) {
	name := storedName(key)
	again := s.used[name] // training and validation use the same text
	s.used[name] = true
	v, err := open(s.fs, name, read)
	if err == nil {
		return v, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		s.Warnings = append(s.Warnings, fmt.Sprintf("the token ids in %s cannot be used; tokenizing again: %v", s.fs.Path(name), err))
	}
	if v, err = made(); err == nil && !again {
		s.made = append(s.made, madeTokens{name, func(w io.Writer) error { return write(w, v) }})
	}
	return v, err
}

func open[T any](f checkpoint.FS, name string, read func(r io.Reader, size int64) (T, error)) (v T, err error) {
	file, err := f.Open(name)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return v, err
	}
	return read(file, info.Size())
}

// Write writes new files to the folder and removes those that this run no longer uses. A failure
// is only a warning.
func (s *TokenStore) Write() (warnings []string) {
	if err := s.replace(); err != nil {
		warnings = append(warnings, fmt.Sprintf("token ids cannot be stored in %s; the next start tokenizes again: %v",
			s.fs.Path(rundir.TokenDir), err))
	}
	s.made = nil
	return warnings
}

func (s *TokenStore) replace() error {
	if len(s.made) > 0 {
		if err := s.fs.Mkdir(rundir.TokenDir); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	for _, m := range s.made {
		if err := folder.Replace(s.fs, m.name, m.write); err != nil {
			return err
		}
	}
	entries, err := s.fs.ReadDir(rundir.TokenDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		name := path.Join(rundir.TokenDir, e.Name())
		if rundir.IsTokenFile(e.Name()) && !s.used[name] {
			err = errors.Join(err, s.fs.RemoveAll(name))
		}
	}
	return err
}
