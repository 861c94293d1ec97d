// Package cluster runs a pipeline over several processes, on one host or many.
//
// A Coordinator owns the cluster's authority, the list of workers and the runs' files: config, data,
// checkpoints. Workers join it with a token, offer their cores, memory and GPUs, and get ranks. Each
// rank's stage is an actor in its worker's process; all other actors of a run are in the
// coordinator's process (package actors). Control messages travel over protoactor's remote, tensors
// over the lane, and beats show which processes are alive. When a worker fails, the run resumes from
// its last checkpoint on the other workers.
//
//	c, err := cluster.NewCoordinator(cluster.Config{Listen: "127.0.0.1:0"})
//	run, err := troupe.Start(ctx, cfg, troupe.Options{Hosts: c.Hosts()})
//
// In the other processes:
//
//	err := cluster.Work(ctx, cluster.WorkerConfig{Join: address, Token: token})
//
// The same config gives the same bits as in one process. Local starts workers as processes on this
// machine.
//
// # Which worker gets which rank
//
// A worker offers its cores, memory, kernels and GPUs. Ranks that compute on CUDA go to workers with
// a GPU, by the GPU's memory; cluster.place names the worker for ranks with a GPU number. Other ranks
// are placed by host memory and cores. Workers whose kernels give different bits are not used
// together. A tensor group stays on one host if a host has the memory and a core for each of its
// ranks; after that, neighboring stages of a pipeline are placed near each other (package arrange).
// The run warns if a tensor group is on several hosts.
//
// With cluster.edge, the ranks of stage 0 stay on the coordinator's host (attempt_edge.go), the plan
// refuses a layout in which another stage reads data, and each message is checked before it leaves
// (package mesh).
//
// At the start of each attempt the coordinator probes which workers see the run's folder
// (attempt_folder.go). Those write their parts of a checkpoint to it; the others send theirs to the
// coordinator. The files are identical (package checkpoint).
//
// # Which processes are alive and reachable
//
// Only beats decide whether a worker is alive (package beat). A connection may work in one direction
// only. So the coordinator dials a joining worker at the address that the worker advertises, and
// refuses an unreachable one (coordinator_reach.go). A worker that can't reach the coordinator's own
// address is not a member until it can. The worker's own log says why it is refused (worker_reach.go).
//
// Each beat names the processes to which the worker's messages have waited too long; the coordinator
// checks its own waiting messages. The run's status names such a broken link (attempt_cut.go). After
// three times the silence the run continues without one of the two workers, and the two are kept
// apart for a minute.
//
// When a worker fails, the run's supervisor ends the attempt with a plan.LostError. troupe.Run starts
// another attempt: it opens the newest checkpoint, chooses workers and assigns ranks. A worker obeys
// the attempt with the highest number that it has seen.
//
// If ranks with the same weights survive, or shadows (attempt_shadows.go), the workers keep their stages when the attempt ends
// (worker_kept.go), and the next attempt has the same workers, with free ones in the place of those that
// failed (attempt_renew.go). If one fails while it begins, it is renewed in its turn: the others have adopted their stages and keep them
// again. A worker releases what it keeps when it is told to do anything else, or
// when the coordinator is silent for longer than the lease.
//
// The ranks of a worker that leaves move in the same way, after a step (attempt_leave.go). A free worker is reserved for them. It prepares
// first, while the run computes (attempt_prepare.go, worker_prepare.go).
//
// Silences, leases and waits for workers count only the time in which this process was awake
// (clock.Awake): a host may sleep, and a virtual machine may be paused.
//
// # A standing coordinator
//
// With Config.Dir a coordinator also runs submitted configs. Operators submit and change runs and
// viewers watch them, through the protocol "api" on the same port (coordinator_api.go). Each request
// is its own stream, with one reply or, for Follow and Logs, a stream of replies.
//
//	client, err := cluster.NewClient(ctx, cluster.ClientConfig{Address: address, Token: token})
//	id, err := client.Submit(ctx, cluster.Submission{Config: text, File: "config.toml"})
//	run, err := client.Follow(ctx, id, cluster.FollowOptions{})
//
// Paths in a submitted config are on the coordinator's host; its environment variables are the
// client's, except those in Submissions.Env. runs.json lists the runs in progress, and ended.json the
// last ones that have ended (package journal).
// A coordinator that restarts with the same folder, after Shutdown or a crash, waits for as many
// workers as a run had and resumes it from its last checkpoint. A follower that is too slow is
// disconnected; it never delays the run. The coordinator keeps the latest records of its own log and
// of the workers' logs, which arrive through the protocol "log". It corrects the times of other
// processes by the clock offsets that beats estimate. The role in a certificate decides who may do
// what (access.go).
//
// # Where things are
//
// The files coordinator_*.go are the coordinator's process: its start (start), its services (api,
// join, logs, tokens), its members (members, names, reach), its runs (submit, run, follow, control,
// resume), and the choice of a run's workers (choose). attempt_*.go is the coordinator's side of one
// attempt at a run: it divides and assigns the ranks, probes the run's folder, observes the workers
// and handles their failures. worker_*.go is a worker's process, and client_*.go the client that
// submits and watches. access.go says who may do what, and limits.go how much.
//
// The packages below internal: pki (authority, tokens, certificates), transport (one port for all
// protocols), link (control messages, once and in order), lane (tensors), beat (failure detection),
// mesh (connects these to the actors), apiwire (encoding of the API), arrange (ranks to workers),
// journal (runs in progress, on disk), locate (finds the coordinator), logring (latest log records).
// The package must not know layers or the inner rules of schedules.
package cluster
