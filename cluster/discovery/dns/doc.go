// Package dns finds a cluster's coordinator by a name of the domain name system, such as that
// of a headless service of Kubernetes. Importing it registers two schemes:
//
//	dns://NAME:PORT                 every A and AAAA record of a name, with a port
//	dns+srv://_troupe._tcp.NAME     every SRV record, by priority, and its own port
//
// HOST:PORT without a scheme takes names too, and the first of their addresses that accepts a
// connection; dns:// tries them all until one proves to be the coordinator.
//
// Nothing is remembered from one lookup to the next.
package dns
