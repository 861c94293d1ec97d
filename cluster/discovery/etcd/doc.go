// Package etcd finds a cluster's coordinator by an etcd, in which the coordinator announces
// itself. Importing it registers a scheme:
//
//	etcd://HOST:PORT,HOST:PORT/PREFIX?ca=FILE&cert=FILE&key=FILE
//
// PREFIX is "troupe" where it is left out. With ca (the authorities of etcd's certificates, in
// PEM) the connection is TLS; cert and key are a client's. Under PREFIX/coordinators/ each
// cluster has a key, whose value is its coordinator's HOST:PORT. The key has a lease: a
// coordinator that dies is forgotten after leaseTTL, one that ends removes it, and one that is
// started again takes it over at once.
//
// A Finder watches the keys from the first Find on, and answers with what it knows: also
// with what it knew last, while etcd can't be reached.
//
// The package must never know tokens.
package etcd
