// Package guard has the checks that HTTP servers of this program make of a request before they answer: the host name, the
// site that it comes from, and the token.
//
// It must not know what a server answers.
package guard
