// Package groups lets the members of a collective.Group be in several processes: it carries their messages
// over the lane.
//
// A [Port] is a process's end of all groups of one scope, such as an attempt at a run. Each process opens its own
// members, in any order and at any time: a message to a member that isn't open yet waits at the sender.
//
//	port := groups.New(node, scope, groups.Config{})
//	g, err := port.Open("dp of stage 1", processes, rank) // the process of each rank
//	...
//	g.Leave(nil)
//	port.Close()
//
// While a member waits, the port asks the processes of its group whether they live, and ends the group with the name of
// one that doesn't answer. A caller that knows earlier says so with [Port.Gone].
//
// A run's attempt turns that question off. When a worker is lost, the coordinator ends the attempt, and each rank
// leaves its groups silently (collective.Group.Abandon), so no error of a collective hides the reason. The run's
// status gets the waits of the groups from [Port.Waiting] when somebody reads it.
//
// The package must never know actors, stages or schedules.
package groups
