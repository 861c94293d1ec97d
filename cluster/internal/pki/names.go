package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A worker's name belongs to the first key that joined with it. Another key gets the name when the holder has left and
// does not keep its key, or, after the holder has left, with the token that the holder joined with. Otherwise it gets the
// name when the holder's last certificate has expired or the name was released.

// Errors of names.
var (
	// ErrNameInUse: the name's holder is a member, or about to become one.
	ErrNameInUse = errors.New("the name is in use")
	// ErrNameHeld: the name belongs to another key.
	ErrNameHeld = errors.New("the name belongs to another key")
	// ErrNameUnknown: the name has no holder.
	ErrNameUnknown = errors.New("no worker has this name")
)

// NameInfo describes a worker's name and its holder.
type NameInfo struct {
	Name  string
	Token string    // id of the token that its holder joined with
	Until time.Time // when its holder's last certificate expires
}

// nameRecord is an authority's record of a name.
type nameRecord struct {
	NameInfo
	kept bool       // the holder keeps its key
	keys [][32]byte // hashes of the keys of its certificates: two during a renewal
}

// issuedToken is an authority's record of a token while certificates from it are valid.
type issuedToken struct {
	id      string
	role    Role
	revoked bool
	until   time.Time // when the last certificate from it expires
}

// Joining is a process's request for a certificate.
type Joining struct {
	TokenID string
	Secret  []byte
	CSR     []byte // DER
	Name    string
	Kept    bool // the process keeps its key and can show it again
	// InUse says why a worker's name is in use; nil: it is not. InUse itself may be nil.
	InUse func(name string) error
}

// Join redeems a token and signs the process's request. The role is the token's. A worker gets the requested name if it
// holds that name or the name has no holder. The names of operators and viewers are labels, which several may share.
func (a *Authority) Join(j Joining, now time.Time) (certDER []byte, id Identity, err error) {
	role, err := a.Redeem(j.TokenID, j.Secret, now)
	if err != nil {
		return nil, Identity{}, err
	}
	id = Identity{Name: j.Name, Role: role}
	public, err := requestKey(j.CSR)
	if err == nil {
		certDER, err = a.sign(public, id, j.TokenID, CertificateTTL, now)
	}
	if err == nil {
		err = a.issued.letIn(func(l *ledger) error { return l.join(j, role, keyHash(public), now) })
	}
	if err != nil {
		return nil, Identity{}, err
	}
	return certDER, id, nil
}

// Renew signs a new certificate for a process that has shown a valid one, unless its token was revoked.
func (a *Authority) Renew(shown *x509.Certificate, csrDER []byte, now time.Time) (certDER []byte, err error) {
	id, err := identityIn(shown)
	if err == nil {
		err = a.Accepts(shown)
	}
	if err != nil {
		return nil, err
	}
	public, err := requestKey(csrDER)
	if err != nil {
		return nil, err
	}
	if certDER, err = a.sign(public, id, tokenOf(shown), CertificateTTL, now); err != nil {
		return nil, err
	}
	err = a.issued.letIn(func(l *ledger) error {
		return l.renew(id, tokenOf(shown), keyHash(shown.PublicKey), keyHash(public), now)
	})
	return certDER, err
}

// Accepts says why a certificate of this authority is no longer accepted: its token was revoked, or its name now belongs
// to another key; nil: it is accepted.
func (a *Authority) Accepts(cert *x509.Certificate) error {
	id, err := identityIn(cert)
	if err != nil || id.Role == Coordinator {
		return err
	}
	return a.issued.read(func(l *ledger) error { return l.accepts(id, tokenOf(cert), keyHash(cert.PublicKey)) })
}

// Release frees a worker's name for another key. The holder's certificates are no longer accepted.
func (a *Authority) Release(name string) error {
	err := a.issued.update(func(l *ledger) error {
		if _, known := l.names[name]; !known {
			return ErrNameUnknown
		}
		delete(l.names, name)
		return nil
	})
	if err != nil {
		return fmt.Errorf("release the name %.100q: %w", name, err)
	}
	return nil
}

// Names lists the workers' names that have a holder.
func (a *Authority) Names() (all []NameInfo) {
	_ = a.issued.read(func(l *ledger) error { // if the file can't be read, the last known names are listed
		for _, r := range l.names {
			all = append(all, r.NameInfo)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b NameInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Changes counts the changes of accepted certificates, by this process or another one.
func (a *Authority) Changes() uint64 {
	var n uint64
	_ = a.issued.read(func(l *ledger) error {
		n = l.changes
		return nil
	})
	return n
}

// tokenOf returns the id of the token that the certificate's process joined with. The certificate has it as the
// serial number of its subject.
func tokenOf(cert *x509.Certificate) string { return cert.Subject.SerialNumber }

func keyHash(public crypto.PublicKey) [32]byte {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil { // never with a key that this package signs
		return [32]byte{}
	}
	return sha256.Sum256(der)
}

func (l *ledger) join(j Joining, role Role, key [32]byte, now time.Time) error {
	l.prune(now)
	if l.tokens[j.TokenID].revoked { // the revocation may be only in this ledger
		return ErrTokenRevoked
	}
	if role == Worker {
		r, known := l.names[j.Name]
		if known && !slices.Contains(r.keys, key) {
			if err := l.mayTake(r, j); err != nil {
				return err
			}
		}
		if !known && len(l.names) >= namesMax {
			return fmt.Errorf("%d workers' names have holders, the limit; release some (engine cluster release)", len(l.names))
		}
		l.names[j.Name] = nameRecord{NameInfo{j.Name, j.TokenID, now.Add(CertificateTTL)}, j.Kept, [][32]byte{key}}
	}
	return l.use(j.TokenID, role, now)
}

// mayTake says why another key can't take a held name; nil: it can.
func (l *ledger) mayTake(r nameRecord, j Joining) error {
	if j.InUse != nil {
		if err := j.InUse(r.Name); err != nil {
			return fmt.Errorf("%w: %w", ErrNameInUse, err)
		}
	}
	if !r.kept || r.Token == j.TokenID || l.tokens[r.Token].revoked {
		return nil
	}
	return fmt.Errorf("%w until %s; start the worker with its --cert-file or the token that it first joined with, choose another name (--name), or release this one (engine cluster release %s)",
		ErrNameHeld, stamp(r.Until), r.Name)
}

func (l *ledger) renew(id Identity, token string, shown, key [32]byte, now time.Time) error {
	if err := l.accepts(id, token, shown); err != nil { // the token or the name may just have been revoked or released
		return err
	}
	if id.Role == Worker {
		r := l.names[id.Name]
		r.keys, r.Until = [][32]byte{shown, key}, now.Add(CertificateTTL)
		l.names[id.Name] = r
	}
	return l.use(token, id.Role, now)
}

// use records a certificate from a token.
func (l *ledger) use(token string, role Role, now time.Time) error {
	t, known := l.tokens[token]
	if !known && len(l.tokens) >= tokensMax {
		return fmt.Errorf("%d tokens have valid certificates, the limit", len(l.tokens))
	}
	t.id, t.role, t.until = token, role, now.Add(CertificateTTL)
	l.tokens[token] = t
	return nil
}

func (l *ledger) accepts(id Identity, token string, key [32]byte) error {
	t, known := l.tokens[token]
	switch {
	case !known:
		return fmt.Errorf("%w: the certificate of %s", ErrTokenUnknown, id)
	case t.revoked:
		return fmt.Errorf("%w: %[3]s joined with token %[2]s", ErrTokenRevoked, token, id)
	case id.Role != Worker:
		return nil
	}
	if r, held := l.names[id.Name]; !held || !slices.Contains(r.keys, key) {
		return fmt.Errorf("%w: %s", ErrNameHeld, id)
	}
	return nil
}

// prune removes names and tokens without valid certificates.
func (l *ledger) prune(now time.Time) {
	before := now.Add(-ClockSkew)
	maps.DeleteFunc(l.names, func(_ string, r nameRecord) bool { return r.Until.Before(before) })
	maps.DeleteFunc(l.tokens, func(_ string, t issuedToken) bool { return t.until.Before(before) })
}
