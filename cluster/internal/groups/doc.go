// Package groups connects the members of a collective.Group in several processes: it sends their messages over the
// lane.
//
// A [Port] is a process's end of all groups in one scope, such as an attempt at a run. Each process opens its own
// members, in any order and at any time. A message to a member that isn't open yet waits at the sender.
//
//	port := groups.New(node, scope, groups.Config{})
//	g, err := port.Open("dp of stage 1", processes, rank) // the process of each rank
//	...
//	g.Leave(nil)
//	port.Close()
//
// While a member waits, the port pings the processes of its group. If one does not answer, the group ends with an error
// that names it. A caller that knows of a failure earlier calls [Port.Gone].
//
// A run's attempt turns the pings off. When a worker fails, the coordinator ends the attempt, and each rank leaves its
// groups silently (collective.Group.Abandon), so no error of a collective hides the reason. The run's status reads the
// waits of the groups from [Port.Waiting].
//
// The package must never know actors, stages or schedules.
package groups
