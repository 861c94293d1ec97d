package process

import (
	"maps"
	"slices"
)

// CoordinatorFigures are the metrics of a coordinator.
var CoordinatorFigures = []Figure[Coordinator]{
	{Metric: "build_info", Help: "Build of the program; always 1.", Labels: []string{"build"},
		Each: func(s *Coordinator, tell func(float64, ...string)) { tell(1, s.Build) }},
	{Metric: "cluster_workers", Help: "Workers that are members of the cluster, by state: free, or busy with a run.",
		Labels: []string{"state"},
		Each: func(s *Coordinator, tell func(float64, ...string)) {
			busy := 0
			for _, w := range s.Workers {
				if w.Busy {
					busy++
				}
			}
			tell(float64(busy), "busy")
			tell(float64(len(s.Workers)-busy), "free")
		}},
	{Metric: "cluster_workers_rejected", Help: "Workers that try to join and that the coordinator can't reach.",
		Each: func(s *Coordinator, tell func(float64, ...string)) { tell(float64(s.Rejected)) }},
	{Metric: "cluster_worker_joins", Total: true, Help: "Times that a worker has joined since the coordinator started.",
		Each: func(s *Coordinator, tell func(float64, ...string)) { tell(float64(s.Joins)) }},
	{Metric: "cluster_worker_departures", Total: true, Help: "Times that a worker has left the cluster in order.",
		Each: func(s *Coordinator, tell func(float64, ...string)) { tell(float64(s.Left)) }},
	{Metric: "cluster_worker_failures", Total: true, Help: "Times that a worker has failed: it was silent, exited or could not be reached.",
		Each: func(s *Coordinator, tell func(float64, ...string)) { tell(float64(s.Failed)) }},
	{Metric: "cluster_worker_heartbeat_age", Unit: Seconds, Help: "Age of a worker's last heartbeat.", Labels: []string{"worker"},
		Each: func(s *Coordinator, tell func(float64, ...string)) {
			for _, w := range s.Workers {
				tell(w.Heard.Seconds(), w.Name)
			}
		}},
	{Metric: "cluster_worker_clock_offset", Unit: Seconds, Help: "How far a worker's clock is ahead of the coordinator's.",
		Labels: []string{"worker"},
		Each: func(s *Coordinator, tell func(float64, ...string)) {
			for _, w := range s.Workers {
				tell(w.Ahead.Seconds(), w.Name)
			}
		}},
	{Metric: "cluster_runs", Help: "Runs that the coordinator lists, by state, with the last ones that have ended.", Labels: []string{"state"},
		Each: func(s *Coordinator, tell func(float64, ...string)) { eachOf(s.Runs, tell) }},
	{Metric: "cluster_run_restarts", Total: true, Help: "Restarts of runs after a worker failed, since the coordinator started.",
		Each: func(s *Coordinator, tell func(float64, ...string)) { tell(float64(s.Restarts)) }},
	{Metric: "cluster_tokens", Help: "Valid join tokens, by role.", Labels: []string{"role"},
		Each: func(s *Coordinator, tell func(float64, ...string)) { eachOf(s.Tokens, tell) }},
	{Metric: "cluster_last_freeze", Unit: Seconds, Help: "Length of the last freeze of the coordinator's process or host; 0: there was none.",
		Each: func(s *Coordinator, tell func(float64, ...string)) { tell(s.Frozen) }},
}

// WorkerFigures are the metrics of a worker.
var WorkerFigures = []Figure[Worker]{
	{Metric: "build_info", Help: "Build of the program; always 1.", Labels: []string{"build"},
		Each: func(s *Worker, tell func(float64, ...string)) { tell(1, s.Build) }},
	{Metric: "worker_joined", Help: "1 if the worker is a member of its cluster, else 0.",
		Each: func(s *Worker, tell func(float64, ...string)) {
			joined := 0.0
			if s.Joined {
				joined = 1
			}
			tell(joined)
		}},
	{Metric: "worker_joins", Total: true, Help: "Times that the worker has become a member since it started.",
		Each: func(s *Worker, tell func(float64, ...string)) { tell(float64(s.Joins)) }},
	{Metric: "worker_heartbeat_age", Unit: Seconds, Help: "Age of the coordinator's last heartbeat.",
		Each: func(s *Worker, tell func(float64, ...string)) { tell(s.Heard.Seconds()) }},
	{Metric: "worker_ranks", Help: "Number of ranks that the worker computes.",
		Each: func(s *Worker, tell func(float64, ...string)) { tell(float64(len(s.Ranks))) }},
	{Metric: "worker_rank_memory", Unit: Bytes, Help: "Peak tensor memory of a rank that the worker computes.", Labels: []string{"rank"},
		Each: func(s *Worker, tell func(float64, ...string)) {
			for _, r := range s.Ranks {
				if r.MemoryBytes > 0 {
					tell(float64(r.MemoryBytes), r.Rank)
				}
			}
		}},
	{Metric: "worker_sent", Unit: Bytes, Total: true, Help: "Bytes of tensors that another process has received from this worker.",
		Labels: []string{"peer"},
		Each: func(s *Worker, tell func(float64, ...string)) {
			for _, l := range s.Lanes {
				tell(float64(l.Sent), l.Peer)
			}
		}},
	{Metric: "worker_received", Unit: Bytes, Total: true, Help: "Bytes of tensors that this worker has received from another process.",
		Labels: []string{"peer"},
		Each: func(s *Worker, tell func(float64, ...string)) {
			for _, l := range s.Lanes {
				tell(float64(l.Received), l.Peer)
			}
		}},
}

// ServerFigures are the metrics of a server that generates texts.
var ServerFigures = []Figure[Server]{
	{Metric: "build_info", Help: "Build of the program; always 1.", Labels: []string{"build"},
		Each: func(s *Server, tell func(float64, ...string)) { tell(1, s.Build) }},
	{Metric: "serve_texts_running", Help: "Texts that are being generated.",
		Each: func(s *Server, tell func(float64, ...string)) { tell(float64(s.Running)) }},
	{Metric: "serve_texts_waiting", Help: "Texts that wait for a place in the batch.",
		Each: func(s *Server, tell func(float64, ...string)) { tell(float64(s.Waiting)) }},
	{Metric: "serve_texts", Total: true, Help: "Texts that have ended.",
		Each: func(s *Server, tell func(float64, ...string)) { tell(float64(s.Texts)) }},
	{Metric: "serve_prompt_tokens", Total: true, Help: "Tokens in the prompts of texts that have ended.",
		Each: func(s *Server, tell func(float64, ...string)) { tell(float64(s.PromptTokens)) }},
	{Metric: "serve_generated_tokens", Total: true, Help: "Tokens generated for texts that have ended.",
		Each: func(s *Server, tell func(float64, ...string)) { tell(float64(s.Tokens)) }},
	{Metric: "serve_requests", Total: true, Help: "Requests for texts, by result: answered, or refused with an error.", Labels: []string{"result"},
		Each: func(s *Server, tell func(float64, ...string)) {
			tell(float64(s.Answered), "answered")
			tell(float64(s.Refused), "refused")
		}},
}

// eachOf tells the counts of a map, sorted by key.
func eachOf(counts map[string]int, tell func(float64, ...string)) {
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		tell(float64(counts[key]), key)
	}
}
