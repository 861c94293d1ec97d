// Package etcd finds a cluster's coordinator through etcd, where the coordinator announces its
// address. Importing it registers a scheme:
//
//	etcd://HOST:PORT,HOST:PORT/PREFIX?ca=FILE&cert=FILE&key=FILE
//
// PREFIX defaults to "troupe". ca is a PEM file with the authority of etcd's certificates and turns
// on TLS; cert and key are the client's certificate and key. Under PREFIX/coordinators/ each cluster
// has a key whose value is its coordinator's HOST:PORT. The key has a lease of leaseTTL (10 s), after
// which the address of a failed coordinator disappears. A coordinator that stops removes the key, and
// one that restarts replaces it at once.
//
// A Finder watches the keys from the first Find on and answers from memory. While etcd can't be
// reached, it answers with the last known addresses.
//
// The package must never know tokens.
package etcd
