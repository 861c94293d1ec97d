// Package cluster runs a pipeline over several processes, on one host or many.
//
// A Coordinator has the authority, the members and the runs' files: configuration, data,
// checkpoints. Workers join it with a token, say what they offer, and are given ranks. Each
// rank's stage is an actor in its worker's process, and all the others of a run are in the
// coordinator's: see package actors. Control messages go over protoactor's remote, tensors
// over a lane of their own, and who is alive is known by beats, on a third way. A run whose
// worker is lost goes on from its last checkpoint with the workers that are left.
//
//	c, err := cluster.NewCoordinator(cluster.Config{Listen: "127.0.0.1:0"})
//	run, err := troupe.Start(ctx, cfg, troupe.Options{Hosts: c.Hosts()})
//
// and in the other processes
//
//	err := cluster.Work(ctx, cluster.WorkerConfig{Join: address, Token: token})
//
// The same configuration gives the same bits as in one process. Local starts workers as
// processes of this machine.
//
// # A standing coordinator
//
// With Config.Dir a coordinator also has runs of its own, which operators submit and others
// watch from elsewhere, by the protocol "api" on the same port (coordinator_api.go): each request is a
// stream of its own, answered once or, for Follow and Logs, on and on.
//
//	client, err := cluster.NewClient(ctx, cluster.ClientConfig{Address: address, Token: token})
//	id, err := client.Submit(ctx, cluster.Submission{Config: text, File: "config.toml"})
//	run, err := client.Follow(ctx, id, cluster.FollowOptions{})
//
// Paths and environment variables in a configuration are the coordinator's. Runs in progress
// are noted in runs.json (package journal): a coordinator that is started again with the same
// folder, after Shutdown or a crash, takes them up from their last checkpoints by itself. It
// keeps the last records of its own log and of the workers', who send theirs by the protocol
// "log". Who may do what follows from the role in a certificate: see access.go.
//
// # Where things are
//
// The files coordinator_*.go are the coordinator's process: how it starts (start), what it serves
// (api, join, logs, tokens), its members (members, names, reach), its runs (submit, run, follow,
// control, resume), and which workers a run gets (choose). attempt_*.go is one attempt at a run on
// the workers that it got, as the coordinator has it: dividing the ranks, assigning them, probing
// the run's folder, observing, and losing a worker. worker_*.go is a worker's process, and
// client_*.go who submits and watches. access.go says who may do what, limits.go how much.
//
// Packages of its own are below internal: pki (authority, tokens, certificates), transport
// (one port for all), link (control messages, once and in order), lane (tensors), beat (who
// is alive), mesh (what joins them to the actors), apiwire (what the API says), arrange (ranks to workers), journal (runs in
// progress, on the disk), locate (where the coordinator is), logring (the last lines of logs). The
// package must not know layers or the inner rules of schedules.
package cluster
