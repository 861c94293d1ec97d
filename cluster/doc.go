// Package cluster runs a pipeline over several processes, on one host or many.
//
// A Coordinator has the authority, the members and the runs' files: configuration, data,
// checkpoints. Workers join it with a token, say what they offer, and get ranks. Each rank's
// stage is an actor in its worker's process; all other actors of a run are in the coordinator's
// (package actors). Control messages travel over protoactor's remote, tensors over the lane, and
// beats say who is alive. When a worker is lost, the run resumes from its last checkpoint with
// the other workers.
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
// # Which worker gets which rank
//
// A worker offers its cores, memory, kernels and GPUs. Ranks that compute on CUDA go to workers with
// a GPU, by its memory; cluster.place names the worker for ranks with a GPU's number. Other ranks go by
// host memory and cores. Workers whose kernels give different bits are not used together. A
// tensor group stays on one host if one has the memory and a core for each of its ranks; then
// neighbours of a pipeline are near (package arrange). The run says which groups are on several hosts.
//
// With cluster.edge, ranks of stage 0 are on the coordinator's host (attempt_edge.go), the plan refuses a
// layout in which another stage reads data, and each message is checked before it leaves (package mesh).
//
// In each attempt the coordinator tries which workers see the run's folder (attempt_folder.go). Those write
// their part of a checkpoint to it themselves; others send it. The files are the same (package checkpoint).
//
// # Who is alive, and who is reached
//
// Beats are the only judge of life (package beat). A process that hears another is not always heard by it:
// the coordinator dials a worker that joins at the address that the worker advertises, and refuses one that
// it can't reach (coordinator_reach.go). A worker that can't reach the coordinator at the coordinator's own address
// is no member until it does. The worker's own log says what keeps it out (worker_reach.go).
//
// Each beat names the processes to which the worker's messages have waited too long, and the coordinator looks at
// its own waiting messages. The run's status names such a cut link (attempt_cut.go). After three times the
// silence the run continues without one of the two workers, and they are kept apart for a while.
//
// When a worker is lost, the run's supervisor ends the attempt with a plan.LostError. troupe.Run begins another
// attempt: it opens the newest checkpoint, chooses workers and assigns ranks. A worker obeys the attempt
// with the highest number that it has seen.
//
// # A standing coordinator
//
// With Config.Dir a coordinator also has runs of its own. Operators submit them and others watch
// them from elsewhere, through the protocol "api" on the same port (coordinator_api.go). Each
// request is a stream of its own, with one answer or, for Follow and Logs, a stream of answers.
//
//	client, err := cluster.NewClient(ctx, cluster.ClientConfig{Address: address, Token: token})
//	id, err := client.Submit(ctx, cluster.Submission{Config: text, File: "config.toml"})
//	run, err := client.Follow(ctx, id, cluster.FollowOptions{})
//
// Paths and environment variables in a configuration are the coordinator's. Runs in progress are
// noted in runs.json (package journal). A coordinator that is started again with the same folder,
// after Shutdown or a crash, waits for as many workers as a run had and resumes it from its last
// checkpoint. A follower that is too slow is cut off; it never delays the run. The coordinator keeps the last
// records of its own log and of the workers' logs, which they send through the protocol "log". Times of other
// processes are corrected by the offset that beats estimate. The role in a certificate decides who may do what
// (access.go).
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
