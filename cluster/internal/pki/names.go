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

// A worker's name belongs to the first key that has joined by it. Who holds another one gets it when the holder is gone and
// had not said that it keeps its key, or shows the token by which the holder had joined; else when the holder's last
// certificate has expired, or the name was released.

// Errors of names.
var (
	// ErrNameInUse is a name whose holder is there, or about to come.
	ErrNameInUse = errors.New("the name is in use")
	// ErrNameHeld is a name that belongs to another key.
	ErrNameHeld = errors.New("the name belongs to another key")
	// ErrNameUnknown is a name that belongs to nobody.
	ErrNameUnknown = errors.New("no worker has had the name")
)

// NameInfo is what an authority tells of a name.
type NameInfo struct {
	Name  string
	Token string    // by which its holder has joined
	Until time.Time // when its holder's last certificate expires
}

// nameRecord is what an authority keeps of a name.
type nameRecord struct {
	NameInfo
	kept bool       // the holder keeps its key
	keys [][32]byte // that its certificates are for: while one is renewed, two
}

// issuedToken is what an authority keeps of a token for as long as there are certificates by it.
type issuedToken struct {
	id      string
	role    Role
	revoked bool
	until   time.Time // when the last certificate by it expires
}

// Joining is a process's request for a certificate.
type Joining struct {
	TokenID string
	Secret  []byte
	CSR     []byte // DER
	Name    string
	Kept    bool // the process keeps its key, and so can show it again
	// InUse says why a worker's name is in use; nil: it is not.
	InUse func(name string) error
}

// Join redeems a token and signs the request of who holds it: the role is the token's. The name is the one asked for, if it
// is a worker's own or nobody's; those of operators and viewers are labels, and several may have one.
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

// Renew signs a new certificate for the process that has shown one, unless what it has joined by was revoked.
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

// Accepts says why a certificate that this authority has signed counts no more: the token behind it was revoked, or its name
// belongs to another key by now.
func (a *Authority) Accepts(cert *x509.Certificate) error {
	id, err := identityIn(cert)
	if err != nil || id.Role == Coordinator {
		return err
	}
	return a.issued.read(func(l *ledger) error { return l.accepts(id, tokenOf(cert), keyHash(cert.PublicKey)) })
}

// Release lets another key have a worker's name. Its holder's certificates count no more.
func (a *Authority) Release(name string) error {
	err := a.issued.update(func(l *ledger) error {
		if _, known := l.names[name]; !known {
			return ErrNameUnknown
		}
		delete(l.names, name)
		return nil
	})
	if err != nil {
		return fmt.Errorf("releasing the name %.100q: %w", name, err)
	}
	return nil
}

// Names lists the names of workers that belong to somebody.
func (a *Authority) Names() (all []NameInfo) {
	_ = a.issued.read(func(l *ledger) error { // what was known before is better than nothing
		for _, r := range l.names {
			all = append(all, r.NameInfo)
		}
		return nil
	})
	slices.SortFunc(all, func(a, b NameInfo) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Changes counts how often what counts was changed, by this process or another one.
func (a *Authority) Changes() uint64 {
	var n uint64
	_ = a.issued.read(func(l *ledger) error {
		n = l.changes
		return nil
	})
	return n
}

// tokenOf is the id of the token by which the process with a certificate has joined.
func tokenOf(cert *x509.Certificate) string { return cert.Subject.SerialNumber }

func keyHash(public crypto.PublicKey) [32]byte {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil { // of no key that this package signs
		return [32]byte{}
	}
	return sha256.Sum256(der)
}

func (l *ledger) join(j Joining, role Role, key [32]byte, now time.Time) error {
	l.prune(now)
	if l.tokens[j.TokenID].revoked { // where that could be kept here alone
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
			return fmt.Errorf("there are %d names of workers, the most: release some (engine cluster release)", len(l.names))
		}
		l.names[j.Name] = nameRecord{NameInfo{j.Name, j.TokenID, now.Add(CertificateTTL)}, j.Kept, [][32]byte{key}}
	}
	return l.use(j.TokenID, role, now)
}

// mayTake says why a name can't be had with another key than its holder's.
func (l *ledger) mayTake(r nameRecord, j Joining) error {
	if j.InUse != nil {
		if err := j.InUse(r.Name); err != nil {
			return fmt.Errorf("%w: %w", ErrNameInUse, err)
		}
	}
	if !r.kept || r.Token == j.TokenID || l.tokens[r.Token].revoked {
		return nil
	}
	return fmt.Errorf("%w until %s: start the worker with its --cert-file, or with the token it first joined by; or choose another name (--name), or release this one (engine cluster release %s)",
		ErrNameHeld, stamp(r.Until), r.Name)
}

func (l *ledger) renew(id Identity, token string, shown, key [32]byte, now time.Time) error {
	if err := l.accepts(id, token, shown); err != nil { // something may have been revoked or released just now
		return err
	}
	if id.Role == Worker {
		r := l.names[id.Name]
		r.keys, r.Until = [][32]byte{shown, key}, now.Add(CertificateTTL)
		l.names[id.Name] = r
	}
	return l.use(token, id.Role, now)
}

// use notes a certificate by a token.
func (l *ledger) use(token string, role Role, now time.Time) error {
	t, known := l.tokens[token]
	if !known && len(l.tokens) >= tokensMax {
		return fmt.Errorf("%d tokens have certificates, the most", len(l.tokens))
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
		return fmt.Errorf("%w: token %s, by which %s has joined", ErrTokenRevoked, token, id)
	case id.Role != Worker:
		return nil
	}
	if r, held := l.names[id.Name]; !held || !slices.Contains(r.keys, key) {
		return fmt.Errorf("%w: %s", ErrNameHeld, id)
	}
	return nil
}

// prune forgets what there are no certificates of any more.
func (l *ledger) prune(now time.Time) {
	before := now.Add(-ClockSkew)
	maps.DeleteFunc(l.names, func(_ string, r nameRecord) bool { return r.Until.Before(before) })
	maps.DeleteFunc(l.tokens, func(_ string, t issuedToken) bool { return t.until.Before(before) })
}
