package cluster

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/cluster/internal/mesh"
	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/cluster/internal/transport"
	"github.com/troupe-ml/troupe/internal/wire"
)

// Who may do what is in the tables of this file, and of actors/sender.go for messages between actors. A test walks them, and
// compares them with those of SECURITY.md.

// protocolRoles says which roles may use which protocols. Joining needs no certificate, and any role may renew its own.
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

// allow says which roles may use which protocols.
func allow(p transport.Peer, protocol string) bool {
	return slices.Contains(protocolRoles[protocol], pki.Role(p.Role))
}

// checkRole refuses a token or a certificate whose role is none of some: who uses it is told before the coordinator is asked.
func checkRole(what string, role pki.Role, want ...pki.Role) error {
	if role == "" || slices.Contains(want, role) { // one that can't be read says so later
		return nil
	}
	if len(want) == 1 {
		return fmt.Errorf("%w: the %s is for %s; %s needs %s.token", ErrForbidden, what, withArticle(role), withArticle(want[0]), want[0])
	}
	return fmt.Errorf("%w: the %s is for %s; use an operator's or a viewer's", ErrForbidden, what, withArticle(role))
}

// withArticle names a process of a role.
func withArticle(role pki.Role) string {
	if role == pki.Operator {
		return "an " + string(role)
	}
	return "a " + string(role)
}

// requestRoles says which roles may make which requests of the protocol "api": a viewer those that change nothing.
var requestRoles = map[string][]pki.Role{
	"submit":   {pki.Operator},
	"control":  {pki.Operator},
	"tokens":   {pki.Operator}, // and only with --remote-tokens
	"forecast": {pki.Operator}, // which has workers measure
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
	fromAssigned    controlSender = "a worker that has a part in the attempt, about itself"
	fromAsked       controlSender = "the worker that was asked"
)

// controlSenders are those of each kind of control message: see membership.control and Coordinator.control.
var controlSenders = map[string]controlSender{
	"assign":    fromCoordinator,
	"release":   fromCoordinator,
	"connect":   fromCoordinator,
	"measure":   fromCoordinator,
	"carry":     fromCoordinator,
	"assigned":  fromAssigned,
	"released":  fromAssigned,
	"connected": fromAsked,
	"measured":  fromAsked,
	"carried":   fromAsked,
}
