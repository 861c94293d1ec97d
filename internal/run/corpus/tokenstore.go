package corpus

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
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
// The nil one keeps nothing. Bytes and characters of plain text are encoded as fast as they are read, and not kept; rows have to be
// parsed, so that their ids are kept from keptRowBytes on.
type TokenStore struct {
	fs       checkpoint.FS
	rowBytes int64 // files of rows of at least so many bytes are worth keeping with any tokenizer
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
	return &TokenStore{fs: f, rowBytes: keptRowBytes, used: make(map[string]bool)}
}

// keptRowBytes is the size of files of rows from which parsing takes longer than the rest of a start.
const keptRowBytes = 32 << 20

// kept reports whether a tokenizer's ids of a text are worth a file.
func (s *TokenStore) kept(tok tokenizer.Tokenizer, rows bool, bytes int64) bool {
	return s != nil && (tok.Name() == tokenizer.HFName || rows && bytes >= s.rowBytes)
}

// key is the digest of a text, by its own digest and the number of its files, a tokenizer, and more that decides its ids.
func storedKey(digest string, files int, tok tokenizer.Tokenizer, more any) (key data.StoredKey, err error) {
	file, err := tokenizer.Marshal(tok)
	if err != nil {
		return key, err
	}
	rest, err := json.Marshal([]any{digest, files, more})
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
	return data.StoredKey(h.Sum(nil)), nil
}

func storedName(key data.StoredKey) string {
	return path.Join(rundir.TokenDir, hex.EncodeToString(key[:])+rundir.TokenSuffix)
}

// storedReader is how files become ids that are worth keeping.
type storedReader[T any] struct {
	tok   tokenizer.Tokenizer
	rows  bool // the files have rows, and no plain text
	more  any  // what decides the ids beside the text and the tokenizer
	text  func() (*data.Text, error)
	made  func(text *data.Text) (T, error)
	read  func(f checkpoint.File, size int64, key data.StoredKey) (v T, keeps bool, err error) // keeps: v reads from the file, and closes it
	write func(w io.Writer, key data.StoredKey, v T) error
}

// idsOf takes the ids of files from the folder, if it has them, and else reads the files and encodes their text. accept judges their
// content; nil: anything is accepted. The text of files whose ids the folder has is only hashed.
func idsOf[T any](s *TokenStore, files []string, accept func(data.Identity) error, r storedReader[T]) (v T, err error) {
	if s.kept(r.tok, r.rows, math.MaxInt64) && s.any() {
		u, err := data.OpenUnread(files)
		if err != nil {
			return v, err
		}
		if u != nil {
			v, ok, err := loadUnread(s, u, len(files), accept, r)
			if ok || err != nil {
				return v, err
			}
			accept = nil // it has accepted
		}
	}
	text, err := r.text()
	if err != nil {
		return v, err
	}
	keeps := s.kept(r.tok, r.rows, text.Len())
	if accept == nil && !keeps {
		return r.made(text)
	}
	id, err := text.Identity()
	if err == nil && accept != nil {
		err = accept(id)
	}
	if err != nil {
		return v, err
	}
	if !keeps {
		return r.made(text)
	}
	digest, err := text.Digest(id)
	if err != nil {
		return v, err
	}
	key, err := storedKey(digest, len(files), r.tok, r.more)
	if err != nil {
		return v, err
	}
	return take(s, key, func(f checkpoint.File, size int64) (T, bool, error) { return r.read(f, size, key) },
		func() (T, error) { return r.made(text) }, func(w io.Writer, v T) error { return r.write(w, key, v) })
}

// loadUnread is idsOf for a text whose ids may be in the folder; ok reports whether they are.
func loadUnread[T any](s *TokenStore, u *data.Unread, files int, accept func(data.Identity) error, r storedReader[T]) (v T, ok bool,
	err error) {
	id, err := u.Identity()
	if err == nil && accept != nil {
		err = accept(id)
	}
	if err != nil {
		return v, false, err
	}
	digest, err := u.Digest(id)
	if err != nil {
		return v, false, err
	}
	key, err := storedKey(digest, files, r.tok, r.more)
	if err != nil {
		return v, false, err
	}
	name := storedName(key)
	v, err = open(s.fs, name, func(f checkpoint.File, size int64) (T, bool, error) { return r.read(f, size, key) })
	if err != nil { // the reader of the text reports it
		return v, false, nil //nolint:nilerr // see above
	}
	s.used[name] = true
	return v, true, nil
}

// any reports whether the folder has any ids.
func (s *TokenStore) any() bool {
	entries, err := s.fs.ReadDir(rundir.TokenDir)
	return err == nil && len(entries) > 0
}

// corpus encodes the text of files, or takes its ids from the folder. text reads the files; fresh gets a text that was encoded now. plain:
// the names of special tokens are text.
func (s *TokenStore) corpus(files []string, accept func(data.Identity) error, text func() (*data.Text, error),
	tok tokenizer.Tokenizer, plain bool, fresh func(*data.Text)) (data.Corpus, error) {
	encode, how := tok, "text"
	if !plain {
		encode, how = tokenizer.WithNames(tok), "text with names of tokens"
	}
	return idsOf(s, files, accept, storedReader[data.Corpus]{tok: tok, more: how, text: text,
		made: func(text *data.Text) (data.Corpus, error) {
			fresh(text)
			return text.Encode(encode)
		},
		read: func(f checkpoint.File, size int64, key data.StoredKey) (data.Corpus, bool, error) {
			c, err := data.OpenCorpus(f, size, key, tok.Vocab())
			return c, err == nil, err
		},
		write: func(w io.Writer, key data.StoredKey, c data.Corpus) error {
			return data.WriteCorpus(w, key, tok.Vocab(), c)
		}})
}

// documents reads and encodes the documents of files, or takes them from the folder. There is at least one; c closes them.
func (c *Data) documents(files []string, accept func(data.Identity) error, r *documentReader) (*data.Documents, error) {
	docs, err := idsOf(c.kept, files, accept, storedReader[*data.Documents]{tok: r.tok, rows: true, more: r.decides(),
		text: func() (*data.Text, error) {
			text, err := data.ReadRows(files, r.columns())
			return text, unreadable(err)
		},
		made: func(text *data.Text) (*data.Documents, error) {
			return readDocuments(text, r)
		},
		read: func(f checkpoint.File, size int64, key data.StoredKey) (*data.Documents, bool, error) {
			docs, err := data.OpenDocuments(f, size, key, r.vocab(), files)
			return docs, err == nil, err
		},
		write: func(w io.Writer, key data.StoredKey, docs *data.Documents) error {
			return data.WriteDocuments(w, key, r.vocab(), files, docs)
		}})
	if err != nil {
		return nil, err
	}
	c.close = append(c.close, docs)
	if docs.Len() == 0 {
		return nil, fmt.Errorf("%w: the files have no documents", data.ErrEmpty)
	}
	return docs, nil
}

// take reads a file of the folder. If there is none, it computes the content and remembers to write it.
// A file that cannot be read is treated like a missing one.
func take[T any](s *TokenStore, key data.StoredKey, read func(f checkpoint.File, size int64) (T, bool, error), made func() (T, error),
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

func open[T any](f checkpoint.FS, name string, read func(f checkpoint.File, size int64) (v T, keeps bool, err error)) (v T, err error) {
	file, err := f.Open(name)
	if err != nil {
		return v, err
	}
	keeps := false
	defer func() {
		if !keeps {
			err = errors.Join(err, file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return v, err
	}
	v, keeps, err = read(file, info.Size())
	return v, err
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

// log opens a growing log of ids in the folder. It is written before the run starts: the folder is locked, and one that has only ids
// is as good as an empty one. Without a store, the log is removed at its end.
func (s *TokenStore) log(key data.StoredKey, vocab int) (*data.Log, error) {
	if s == nil {
		return temporaryLog(key, vocab)
	}
	if err := s.fs.Mkdir(rundir.TokenDir); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	base := path.Join(rundir.TokenDir, hex.EncodeToString(key[:]))
	var files [2]checkpoint.File
	for i, suffix := range []string{rundir.LogSuffix, rundir.IndexSuffix} {
		s.used[base+suffix] = true
		f, err := s.fs.Append(base + suffix)
		if err != nil {
			if i > 0 {
				err = errors.Join(err, files[0].Close())
			}
			return nil, err
		}
		files[i] = f
	}
	l, err := data.OpenLog(files[0], files[1], key, vocab)
	if errors.Is(err, data.ErrStored) {
		s.Warnings = append(s.Warnings, fmt.Sprintf("the token ids in %s cannot be used; tokenizing again: %v",
			s.fs.Path(base+rundir.IndexSuffix), err))
		if err = errors.Join(files[0].Truncate(0), files[1].Truncate(0)); err == nil {
			l, err = data.OpenLog(files[0], files[1], key, vocab)
		}
	}
	if err != nil {
		return nil, errors.Join(err, files[0].Close(), files[1].Close())
	}
	return l, nil
}

// temporaryLog makes a log in files that have no name.
func temporaryLog(key data.StoredKey, vocab int) (*data.Log, error) {
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp("", "troupe-ids-*")
		if err != nil {
			return nil, err
		}
		_ = os.Remove(f.Name()) // where that is not possible the system does it later
		files[i] = f
	}
	return data.OpenLog(files[0], files[1], key, vocab)
}
