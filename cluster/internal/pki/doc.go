// Package pki identifies the processes of a cluster. It has the cluster's authority, the tokens with
// which processes join, their certificates, and the TLS configs that check certificates.
//
// The coordinator opens the authority (OpenAuthority) and issues its own certificate (Issue). It
// creates a token for the processes that may join (NewToken); someone copies the token's text to their
// hosts. A joining process dials with JoinTLS: the token contains the hash of the authority's root
// certificate, so the process refuses a coordinator without a certificate below that root before it
// sends the secret. Then it sends the token's id and secret with a certificate request (NewRequest).
// Join checks the token and signs the request, and the process combines key, certificate and root
// (Bind). The caller transports these messages.
//
// From then on a process dials with ClientTLS, listens with ServerTLS, and gets its peer's identity from
// IdentityOf. A certificate names a process and its role, but no address, because hosts may move. A
// Keeper renews it in time over a connection of its caller.
//
// With a revoked token no process can join. Accepts refuses, and Renew does not renew, the
// certificates that processes got with it; the caller closes their connections.
//
// The files in the authority's folder:
//
//	authority.pem   the private key and the root certificate
//	tokens.json     the tokens, with hashes of their secrets
//	issued.json     the holders of workers' names, and the tokens with valid certificates
//	.lock           locked during a change, because several processes may open one authority
//
// The package must never know actors, protoactor, or sockets.
package pki
