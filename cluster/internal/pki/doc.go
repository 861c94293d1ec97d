// Package pki says who is who in a cluster: its authority, the tokens by which a process
// joins, the certificates that processes then have, and the TLS configurations that check
// them.
//
// The coordinator opens the authority (OpenAuthority) and gives itself a certificate (Issue).
// For each host that is to join it makes a token (NewToken), whose text somebody carries
// there. The joiner dials with JoinTLS: the token has the hash of the authority's root
// certificate, so a coordinator that can't show a certificate below that root is refused
// before the secret is sent. Then it sends the token's id and secret with a certificate
// request (NewRequest); SignJoin checks and signs; the joiner puts key, certificate and root
// together (Bind). How these travel is not for this package.
//
// From then on a process dials with ClientTLS, listens with ServerTLS, and asks IdentityOf
// whom it talks to. A certificate names a process and its role, never an address: hosts may
// move. A Keeper renews it in time over whatever connection its caller gives it.
//
// A token that is revoked lets nobody join any more. Certificates that it has given stay
// valid until they expire, and their holders may renew them unless the caller, who signs,
// refuses.
//
// The files in the authority's folder:
//
//	authority.pem   the private key and the root certificate
//	tokens.json     the tokens, with hashes of their secrets
//	.lock           taken for the time of a change; several processes may open one authority
//
// The package must never know actors, protoactor, or sockets.
package pki
