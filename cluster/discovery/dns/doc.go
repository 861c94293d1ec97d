// Package dns finds a cluster's coordinator through DNS, for example by the name of a headless
// service in Kubernetes. Importing it registers two schemes:
//
//	dns://NAME:PORT                 every A and AAAA record of a name, with a port
//	dns+srv://_troupe._tcp.NAME     every SRV record, by priority, with its own port
//
// HOST:PORT without a scheme accepts names too and uses the first of their addresses that accepts a
// connection. dns:// tries all addresses until one proves to be the coordinator.
//
// The package caches no lookups.
package dns
