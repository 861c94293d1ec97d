package pki

import (
	"errors"
	"fmt"
)

var (
	// ErrToken is a text that is no token, or one that was changed on its way.
	ErrToken = errors.New("not a valid token")

	// ErrTokenRefused is what a peer is told of a token that the authority does not accept.
	// Which of the three below it was is for the log alone.
	ErrTokenRefused = errors.New("the token was refused")
	// ErrTokenUnknown is a token that the authority never made, or a wrong secret.
	ErrTokenUnknown = fmt.Errorf("%w: not a token of this authority", ErrTokenRefused)
	// ErrTokenExpired is a token whose time is over.
	ErrTokenExpired = fmt.Errorf("%w: it has expired", ErrTokenRefused)
	// ErrTokenRevoked is a token that was revoked.
	ErrTokenRevoked = fmt.Errorf("%w: it was revoked", ErrTokenRefused)

	// ErrNoIdentity is a connection whose peer has shown no certificate.
	ErrNoIdentity = errors.New("the peer has no certificate")
	// ErrIdentity is a name or a role that no process can have, or a certificate without one.
	ErrIdentity = errors.New("not an identity of a cluster")
	// ErrRole is a peer, or a request, with a role that is not allowed here.
	ErrRole = errors.New("wrong role")
	// ErrName is a process that has another name than the one that was dialled.
	ErrName = errors.New("wrong name")
	// ErrImpostor is a coordinator that is not of the authority that made the token.
	ErrImpostor = errors.New("not the coordinator that the token is for")

	// ErrDamaged is a file that can't be used as it stands. It is never replaced.
	ErrDamaged = errors.New("damaged")
	// ErrExposed is a file or a folder that other users may read or write.
	ErrExposed = errors.New("open to other users")
)
