package pki

import (
	"errors"
	"fmt"
)

var (
	// ErrToken: the text is not a token, or was changed in transit.
	ErrToken = errors.New("not a valid token")

	// ErrTokenRefused: the authority does not accept the token. Tell the peer only this; the log says
	// which of the three errors below it was.
	ErrTokenRefused = errors.New("the token was refused")
	// ErrTokenUnknown: the authority did not create the token, or the secret is wrong.
	ErrTokenUnknown = fmt.Errorf("%w: not a token of this authority", ErrTokenRefused)
	// ErrTokenExpired: the token has expired.
	ErrTokenExpired = fmt.Errorf("%w: it has expired", ErrTokenRefused)
	// ErrTokenRevoked: the token was revoked.
	ErrTokenRevoked = fmt.Errorf("%w: it was revoked", ErrTokenRefused)

	// ErrNoIdentity: the peer of a connection has shown no certificate.
	ErrNoIdentity = errors.New("the peer has no certificate")
	// ErrIdentity: the name or the role is invalid, or the certificate has none.
	ErrIdentity = errors.New("not a valid cluster identity")
	// ErrRole: the peer or the request has a role that is not allowed here.
	ErrRole = errors.New("wrong role")
	// ErrName: the process has a different name than the dialed one.
	ErrName = errors.New("wrong name")
	// ErrImpostor: the coordinator does not belong to the authority that created the token.
	ErrImpostor = errors.New("not the coordinator that the token is for")

	// ErrDamaged: the file can't be parsed. It is never replaced.
	ErrDamaged = errors.New("damaged")
	// ErrExposed: other users may read or write the file or the folder.
	ErrExposed = errors.New("open to other users")
)
