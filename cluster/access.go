package cluster

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// The tables in this file say which role may do what; actors/sender.go has the table for messages between actors. A test
// tries every cell and compares the tables with those in SECURITY.md.

// protocolRoles lists the roles that may use each protocol. Joining needs no certificate, and every role may renew its own.
var protocolRoles = map[string][]pki.Role{
	transport.ProtocolJoin:    {pki.Coordinator, pki.Worker, pki.Operator, pki.Viewer},
	renewProtocol:             {pki.Coordinator, pki.Worker, pki.Operator, pki.Viewer},
	transport.ProtocolControl: {pki.Coordinator, pki.Worker},
	mesh.LaneProtocol:         {pki.Coordinator, pki.Worker},
	probeProtocol:             {pki.Coordinator, pki.Worker},
	beatProtocol:              {pki.Worker},
	logProtocol:               {pki.Worker},
	apiProtocol:               {pki.Operator, pki.Viewer},
}

// allow reports whether a peer's role may use a protocol.
func allow(p transport.Peer, protocol string) bool {
	return slices.Contains(protocolRoles[protocol], pki.Role(p.Role))
}

// checkRole refuses a token or a certificate with the wrong role, before this process asks the coordinator.
func checkRole(what string, role pki.Role, want ...pki.Role) error {
	if role == "" || slices.Contains(want, role) { // an unreadable one is reported later
		return nil
	}
	if len(want) == 1 {
		return fmt.Errorf("%w: the %s is for %s, but %s needs %s.token", ErrForbidden, what, withArticle(role), withArticle(want[0]), want[0])
	}
	return fmt.Errorf("%w: the %s is for %s; use that of an operator or a viewer", ErrForbidden, what, withArticle(role))
}

// withArticle returns the role with its article, such as "an operator".
func withArticle(role pki.Role) string {
	if role == pki.Operator {
		return "an " + string(role)
	}
	return "a " + string(role)
}

// requestRoles lists the roles that may make each request of the protocol "api". A viewer may make only requests that
// change nothing.
var requestRoles = map[string][]pki.Role{
	"submit":   {pki.Operator},
	"control":  {pki.Operator},
	"tokens":   {pki.Operator}, // and only with --remote-tokens
	"forecast": {pki.Operator}, // it makes workers measure
	"drain":    {pki.Operator},
	"follow":   {pki.Operator, pki.Viewer},
	"list":     {pki.Operator, pki.Viewer},
	"status":   {pki.Operator, pki.Viewer},
	"logs":     {pki.Operator, pki.Viewer},
	"members":  {pki.Operator, pki.Viewer},
	"record":   {pki.Operator, pki.Viewer},
	"actions":  {pki.Operator, pki.Viewer},
}

// mayAsk reports whether a role may make a request.
func mayAsk(role pki.Role, r *wire.ApiRequest) bool {
	m := r.ProtoReflect()
	kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	return kind != nil && slices.Contains(requestRoles[string(kind.Name())], role)
}

// controlSender says who may send a process a control message.
type controlSender string

const (
	fromCoordinator controlSender = "the coordinator"
	fromAssigned    controlSender = "a worker of the attempt, about itself"
	fromAsked       controlSender = "the worker that was asked"
)

// controlSenders names the sender of each kind of control message. membership.control and Coordinator.control enforce it.
var controlSenders = map[string]controlSender{
	"assign":    fromCoordinator,
	"release":   fromCoordinator,
	"connect":   fromCoordinator,
	"measure":   fromCoordinator,
	"carry":     fromCoordinator,
	"prepare":   fromCoordinator,
	"assigned":  fromAssigned,
	"released":  fromAssigned,
	"connected": fromAsked,
	"measured":  fromAsked,
	"carried":   fromAsked,
	"prepared":  fromAsked,
}
