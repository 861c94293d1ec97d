# Troupe. `make help` lists the targets; `make run` and `make test` need only Go and make.

GO      ?= go
BIN     := bin
# Tests write many files that need not survive a power loss.
IN_MEMORY := $(CURDIR)/scripts/in-memory
ENGINE  := $(BIN)/engine
# The linter's version, built into bin/ when needed.
LINT_VERSION := v2.15.0
LINT    := $(BIN)/golangci-lint-$(LINT_VERSION)
GOROOT  := $(shell $(GO) env GOROOT)
# No cgo: one binary. On Linux it is linked to the C library, which opens CUDA's libraries;
# `go build -tags nocuda` builds a static binary without CUDA. Only the race detector needs a
# C compiler.
export CGO_ENABLED = 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## print this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the binary, bin/engine
	$(GO) build -buildvcs=auto -trimpath -o $(ENGINE) ./cmd/engine

DEMO := runs/go-source
.PHONY: run
run: build ## train a Llama model on the source of Go's net packages in 2 to 3 minutes, and let it write Go; after Ctrl-C, make run resumes
	@echo "Training takes about 2 minutes on 2 cores with AVX-512, and about 3 with AVX2."
	[ -d $(DEMO)-tokenizer ] || $(ENGINE) tokenize --train --vocab 2048 --to $(DEMO)-tokenizer '$(GOROOT)/src/net/**/*.go'
	@view=; [ ! -t 1 ] || view=--view; set -x; \
	  GOROOT=$(GOROOT) $(ENGINE) run examples/go-source/config.toml $$view
	$(ENGINE) generate --from $(DEMO) --prompt 'func (' --tokens 240 --temperature 0.8
	@echo; echo "To see its pipeline and curves in a browser: $(ENGINE) ui runs"

# Many tests wait for other processes: four packages at once keep 2 cores busy.
TEST_PACKAGES_AT_ONCE := $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 4 ? 4 : n)))

.PHONY: test
test: ## run all tests; make check-race and make check-cluster run them with the race detector
	$(IN_MEMORY) $(GO) test -vet=off -p $(TEST_PACKAGES_AT_ONCE) ./...
	cd $(ASMGEN) && $(GO) vet . && $(GO) test .

# Packages that start goroutines, except the cluster's.
RACE_PACKAGES := . ./test/... ./infer/... ./actors ./checkpoint ./internal/collective ./data/samples ./internal/base/clock ./internal/run/control ./internal/run/fanout ./tensorops ./tensorops/cpu ./tensorops/cuda ./stages ./stages/gorgonia ./stages/layertest ./telemetry/...

.PHONY: check-race
check-race: ## run the tests of concurrent packages with the race detector; needs a C compiler (gcc or clang)
	CGO_ENABLED=1 $(IN_MEMORY) $(GO) test -race -timeout 20m $(RACE_PACKAGES)

# Tests that close one node and start the next one in a process. protoactor sets gRPC's global logger whenever a node starts, without
# a lock, so the race detector may report that write beside the last reads of the closed node's connections.
RESTARTED := ^(TestAskedWhileItWaits|TestStoppedWhereNothingIsNoted)$$

.PHONY: check-cluster
check-cluster: ## test the cluster and the command line with the race detector, the deployment examples, and discovery through etcd
	CGO_ENABLED=1 $(IN_MEMORY) $(GO) test -race -timeout 20m -skip '$(RESTARTED)' ./cli ./cluster ./cluster/discovery/... ./cluster/internal/...
	cd $(DEPLOY) && $(GO) vet . && $(GO) test .
	cd $(ETCD) && $(GO) vet . && $(GO) test .

.PHONY: bench
bench: ## run the benchmarks (BENCHMARKS.md has results)
	$(GO) test -run '^$$' -bench . -benchtime 2s ./actors ./tensorops/cpu/... ./scheduler

# A separate module, for its own dependencies. It runs the engine as the deployment files say.
DEPLOY := examples/deploy/test
# A separate module, for etcd's server.
ETCD := cluster/discovery/etcd/test

# A separate module, for programs that receive metrics.
METRICS := telemetry/test

ASMGEN := tensorops/cpu/internal/asmgen

.PHONY: generate
generate: ## regenerate the assembly
	cd $(ASMGEN) && $(GO) run .

.PHONY: proto
proto: ## regenerate the Go code of the message schema
	cd internal/wire && $(GO) run github.com/bufbuild/buf/cmd/buf@v1.75.0 generate

.PHONY: check-net
check-net: ## test over networks with delay, packet loss, limited rate and partitions (Linux, as root)
	TROUPE_NETLAB=1 $(GO) test -v -count=1 -timeout 20m -run Net ./internal/testing/netlab/... $(addsuffix /...,$(wildcard ./cluster))

WORLDS ?= 200000
WORLDS_SEED ?= 18
.PHONY: check-worlds
check-worlds: ## compare the checker of grids with executions of WORLDS (200000) random grids of WORLDS_SEED
	$(GO) test -v -count=1 -timeout 60m -run '^TestAgree$$' ./internal/world -worlds $(WORLDS) -seed $(WORLDS_SEED)

TABLES ?= 10000
.PHONY: check-tables
check-tables: ## compare the checkers of tables with exchanges of tokens with executions of TABLES (10000) random ones of WORLDS_SEED
	$(GO) test -v -count=1 -timeout 60m -run '^TestTables$$' ./internal/world -tables $(TABLES) -seed $(WORLDS_SEED)

.PHONY: check-long
check-long: ## run the long form of all tests; make test runs a part of them (an hour)
	TROUPE_LONG_TESTS=1 TROUPE_ARM64=1 $(IN_MEMORY) $(GO) test -vet=off -timeout 60m ./...

.PHONY: check-bits
check-bits: ## train under every layout, in one process and several, in float32 and bfloat16, and compare every bit
	TROUPE_LONG_TESTS=1 $(IN_MEMORY) $(GO) test -v -count=1 -timeout 20m -run '^Test(Exact.*|Frozen|DocumentBits)$$' ./test/bits
	TROUPE_LONG_TESTS=1 $(IN_MEMORY) $(GO) test -v -count=1 -timeout 20m -run '^Test(Bits|GridBits|ZeroBits|LostInGroup)$$' ./cluster

.PHONY: check-grids
check-grids: ## train under a table of grids, with a process for each rank and in one process, and compare the losses
	TROUPE_GRIDS=1 $(IN_MEMORY) $(GO) test -v -count=1 -timeout 60m -run '^TestGridTable$$' ./cluster
	TROUPE_LONG_TESTS=1 $(IN_MEMORY) $(GO) test -count=1 -timeout 20m -run '^Test(Grid|Zero|ExpertGroups|ExpertPairs)' ./test/grid ./test/bits

.PHONY: check-plans
check-plans: ## plan models of 7, 70 and 405 billion parameters for 8 to 8,192 GPUs, and one with experts
	TROUPE_LONG_TESTS=1 $(GO) test -v -count=1 -timeout 30m -run '^TestLarge(Expert)?Plans$$' ./internal/forecast

KILLS_SEED ?= 0
.PHONY: check-kills
check-kills: ## kill, stop and interrupt workers and the coordinator at random moments, pause runs, change learning rates and set clocks, in pipelines and grids (Linux; KILLS_SEED=n)
	TROUPE_KILLS=1 $(GO) test -count=1 -timeout 60m -v -run '^Test(Kills|RequestsSurvive)$$' ./cluster -kills.seed $(KILLS_SEED)
	TROUPE_KILLS=1 $(GO) test -count=1 -timeout 20m -v -run '^TestInterruptThenLoss$$' ./cli

FAULTS_SEEDS ?= 1000
.PHONY: check-faults
check-faults: ## kill and stop workers at named points of a step and of a renewal, renew a run 100 times, simulate FAULTS_SEEDS (1000) runs over a bad network, and search a model of the protocol (Linux)
	TROUPE_FAULTS=1 $(IN_MEMORY) $(GO) test -count=1 -timeout 60m -v -run '^Test(Faults|NotReplaced|ManyRenewals|Replace|Drain|Rescue|ShareOut)$$' ./cluster
	$(GO) test -count=1 -timeout 60m -run '^TestRenewalsUnderFaults$$' ./cluster/internal/mesh -renewals.seeds $(FAULTS_SEEDS) -parallel 4
	TROUPE_LONG_TESTS=1 $(GO) test -count=1 -timeout 30m -v -run '^Test(Model|ModelFinds|RenewedAttempts)$$' ./actors

.PHONY: check-chaos
check-chaos: ## run check-kills for ten minutes in one run (Linux; KILLS_SEED=n)
	TROUPE_KILLS=1 $(GO) test -count=1 -timeout 60m -v -run '^TestKills$$/^pipeline$$' ./cluster -kills.seed $(KILLS_SEED) -kills.faults 120 -kills.steps 1800

IDLE_MINUTES ?= 10
.PHONY: check-idle
check-idle: ## measure an idle coordinator and an idle worker for IDLE_MINUTES (10) (Linux)
	TROUPE_IDLE=1 $(GO) test -count=1 -timeout 60m -v -run '^TestIdle$$' ./cluster -idle.minutes $(IDLE_MINUTES)

# A separate module, for the driver of a browser.
UITEST := ui/test
UI_PICTURES ?= $(CURDIR)/$(BIN)/ui-pictures
.PHONY: check-ui
check-ui: ## test the page of engine ui in headless Chromium: real runs, a stall, 2 hosts, large tables, accessibility; pictures go to bin/ui-pictures (needs Chromium and npm)
	@mkdir -p $(UI_PICTURES)
	cd $(UITEST) && $(GO) vet . && TROUPE_UI_PICTURES=$(UI_PICTURES) $(GO) test -v -count=1 -timeout 20m .

.PHONY: pictures
pictures: ## make the pictures of README.md, in docs/, with headless Chromium
	@mkdir -p docs
	cd $(UITEST) && TROUPE_README_PICTURES=$(CURDIR)/docs $(GO) test -v -count=1 -timeout 20m -run '^TestReadmePictures$$' .

.PHONY: drawings
drawings: build ## make the drawings of docs/, by the commands in docs/drawings.txt
	@set -e; grep '^engine ' docs/drawings.txt | while read -r _ command; do echo "engine $$command"; $(ENGINE) $$command; done

.PHONY: docs
docs: ## write docs/config.md from the keys of a config, and docs/cli.md from the commands
	$(GO) test -vet=off -count=1 -run '^TestDocs$$' ./config ./cli -update

SERVICE_SECONDS ?= 60
.PHONY: check-service
check-service: ## measure examples/service with 8 clients for SERVICE_SECONDS (60), and while idle
	TROUPE_SERVICE_SECONDS=$(SERVICE_SECONDS) $(GO) test -count=1 -timeout 60m -v -run '^TestLoad$$' ./examples/service
	@$(GO) build -trimpath -ldflags '-s -w' -o $(BIN)/example-service ./examples/service
	@ls -l $(BIN)/example-service
	@echo "$$($(GO) list -deps ./examples/service | wc -l) packages"

PYTHON ?= python3
PUBLISHED ?= smollm2-135m gemma3-270m
CHAT_SEED ?= 1
.PHONY: check-chat
check-chat: ## compare conversations in published chat templates with transformers: ids, learned tokens and losses; needs PYTHON with torch and transformers, and downloads 60 MB
	@d=$$(mktemp -d) && trap 'rm -rf "$$d"' EXIT && $(PYTHON) internal/chat/testdata/vectors.py --published "$$d" && \
		$(PYTHON) -W ignore internal/chat/testdata/expressions.py --random 5000 --seed $(CHAT_SEED) --to "$$d" && \
		$(PYTHON) internal/testing/documents/vectors.py --published "$$d" && \
		TROUPE_CHAT_TEMPLATES="$$d" $(GO) test -count=1 -v -run '^(TestPublished(Documents|DocumentLosses)?|TestRandomExpressions)$$' ./internal/chat ./internal/run/corpus ./infer

.PHONY: check-metrics
check-metrics: ## check a run's metrics with promtool, an OpenTelemetry collector and TensorBoard; needs PYTHON with tensorboard, and builds promtool (minutes) unless PROMTOOL names it (Linux)
	cd $(METRICS) && $(GO) vet . && PYTHON=$(PYTHON) $(GO) test -count=1 -v -timeout 30m .

.PHONY: check-serve
check-serve: ## use engine serve's server with the public openai client, and compare eight clients at once with one, for a model of 135 million parameters; needs PYTHON with openai
	TROUPE_PYTHON=$(PYTHON) $(GO) test -count=1 -v -timeout 20m -run '^TestClients?$$' ./infer/serve

.PHONY: check-hf
check-hf: ## load models and tokenizers of every family in transformers, compare logits and ids; needs PYTHON with torch and transformers
	TROUPE_PYTHON=$(PYTHON) $(GO) test -count=1 -v -timeout 20m -run '^(TestLoadsInTransformers|TestTokenizersInTransformers|TestModelsInTransformers)$$' ./stages ./test/data

.PHONY: check-muon
check-muon: ## compare updates of random matrices by Muon with torch.optim.Muon; needs PYTHON with torch 2.9 or later
	$(PYTHON) -W ignore bench/peers/muon.py

.PHONY: check-published
check-published: build ## evaluate and tune two published models (of PyPI's packages, 330 MB) beside transformers, and compare the losses; needs PYTHON with torch, transformers and gguf
	$(PYTHON) -W ignore bench/peers/pretrained.py --check --engine $(BIN)/engine --context 64 --sequences 2 --models $(PUBLISHED)

.PHONY: check-choices
check-choices: build ## score 200 multiple-choice items with two models (one of PyPI's packages, 100 MB) beside transformers, and compare choices and log-likelihoods; needs PYTHON with torch, transformers and gguf
	$(PYTHON) -W ignore bench/peers/choices.py --engine $(BIN)/engine

# The release of PEFT that check-peft was written for.
PEFT := peft==0.21.2
.PHONY: check-peft
check-peft: ## train adapters of every family beside PEFT, and let PEFT and transformers load what Troupe writes; needs PYTHON with torch and transformers, in which pip installs PEFT
	$(PYTHON) -m pip install -q $(PEFT)
	TROUPE_PEFT=1 TROUPE_PYTHON=$(PYTHON) $(GO) test -count=1 -v -timeout 20m -run '^TestAdaptersInPEFT$$' ./test/data

.PHONY: check-preferences
check-preferences: ## learn from preferences with each loss beside PyTorch in float64; needs PYTHON with torch and transformers
	TROUPE_PREFERENCES=1 TROUPE_PYTHON=$(PYTHON) $(GO) test -count=1 -v -timeout 20m -run '^TestPreferencesInTorch$$' ./test/data

# The release of TRL that check-trl was written for.
TRL := trl==1.16.0
.PHONY: check-trl
check-trl: build ## compare losses and gradients of preferences with TRL's, and those of distillation with PyTorch's kl_div; needs PYTHON with torch and transformers, in which pip installs TRL
	$(PYTHON) -m pip install -q $(TRL)
	$(PYTHON) -W ignore bench/peers/objectives.py --engine $(BIN)/engine

.PHONY: check-gguf
check-gguf: ## compare GGUF files of every family with the public gguf package; needs PYTHON with torch, transformers and gguf; with LLAMA_CPP, LLAMA_CPP_LIB and LLAMA_CPP_PYTHON also with llama.cpp's converter, losses and ids
	TROUPE_PYTHON=$(PYTHON) $(GO) test -count=1 -v -timeout 40m -run '^TestPublicPrograms$$' ./internal/ggufmodel

TORCH_SEED ?= 1
.PHONY: check-torch-tables
check-torch-tables: ## read, prove, simulate and train with tables that PyTorch writes, and let PyTorch load Troupe's: 120 random tables each, of TORCH_SEED (1); needs PYTHON with torch 2.15 or later
	TROUPE_PYTHON=$(PYTHON) TROUPE_TORCH_SEED=$(TORCH_SEED) $(GO) test -count=1 -v -timeout 20m -run '^TestTorchTables$$' ./test/data

.PHONY: check-large
check-large: build ## tune the last layers of a model of 1.5 billion parameters under a limit of 8 GiB (Linux, as root; 14 GB of disk)
	$(PYTHON) bench/large.py --engine $(BIN)/engine

.PHONY: check-scale
check-scale: ## measure 64 to 1,024 stages in 17 actor systems
	$(GO) test -run '^$$' -bench Stages -benchtime 1x -timeout 20m ./cluster/internal/mesh

LONG ?= 1
.PHONY: check-arm64
check-arm64: ## test the arm64 kernels and small runs in an emulator (qemu-user-static); compare the encodings with binutils
	@command -v qemu-aarch64-static >/dev/null || command -v qemu-aarch64 >/dev/null || echo "no qemu-aarch64 here (Debian: qemu-user-static): the kernels for arm64 are not tested"
	TROUPE_ARM64=1 TROUPE_LONG_TESTS=$(LONG) $(GO) test -v -count=1 -timeout 60m -run '^TestARM64$$' ./test/grid
	GOOS=linux GOARCH=arm64 $(GO) vet -tags nocuda ./tensorops/cpu/...
	GOOS=darwin GOARCH=arm64 $(GO) vet -tags nocuda ./tensorops/cpu/...
	cd $(ASMGEN) && $(GO) test -v -count=1 -run '^Test(Assembles|Disassembles|Instructions)$$' .

.PHONY: check-kernels
check-kernels: ## compile the CUDA kernels for several GPUs with one version of NVIDIA's compiler; pip downloads it (no GPU needed)
	GO=$(GO) scripts/cuda-check 13

.PHONY: check-cuda
check-cuda: ## compile the CUDA kernels for several GPUs with NVIDIA's compiler, which pip downloads, and run them on a simulated GPU (no GPU needed)
	GO=$(GO) scripts/cuda-check
	TROUPE_LONG_TESTS=1 $(GO) test -count=1 -run '^Test(Ops|Deterministic|OpsByLibrary|FusedOps|Dry|FailingCalls|Bench|Trains|TrainsExperts|TrainsBesideTheCPU|TrainsOnGPUs|TrainsOnGPUsAlike)$$' ./tensorops/cuda

.PHONY: count-cuda
count-cuda: ## count the bytes, operations and waits of a GPT-2 124M step on a GPU, by kernel, and check the counts (needs a C++ compiler, no GPU)
	TROUPE_LONG_TESTS=1 $(GO) test -v -count=1 -run '^TestStep$$' ./tensorops/cuda/internal/count
	TROUPE_LONG_TESTS=1 $(GO) test -count=1 -run '^Test(Table|Log|LogRefused|Compare|Shape)$$' ./tensorops/cuda/internal/count

.PHONY: ptx
ptx: ## compile the CUDA kernels to the PTX that the binary embeds (pip downloads the compiler, no GPU needed)
	GO=$(GO) scripts/cuda-ptx

GPU := gpu-build
.PHONY: gpu-build
gpu-build: ## build everything that scripts/gpu-check needs on a machine with a GPU, into gpu-build/
	rm -rf $(GPU)
	mkdir -p $(GPU)/scripts $(GPU)/models $(GPU)/bench
	$(GO) build -trimpath -ldflags '-s -w' -o $(GPU)/engine ./cmd/engine
	$(GO) test -c -trimpath -ldflags '-s -w' -o $(GPU)/cuda.test ./tensorops/cuda
	cp -r bench/peers $(GPU)/bench/
	cp internal/bench/models/*.toml $(GPU)/models/
	cp scripts/gpu-check $(GPU)/scripts/
	@du -sh $(GPU)

DIST := dist
SYSTEMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64
.PHONY: dist
dist: ## build the binaries for every system, with manual pages, completions and checksums, into dist/
	rm -rf $(DIST)
	mkdir -p $(DIST)
	@set -e; for s in $(SYSTEMS); do os=$${s%/*}; arch=$${s#*/}; exe=; [ $$os != windows ] || exe=.exe; \
	  echo "$$os/$$arch"; \
	  GOOS=$$os GOARCH=$$arch $(GO) build -buildvcs=auto -trimpath -tags nocuda -ldflags '-s -w' -o $(DIST)/engine-$$os-$$arch$$exe ./cmd/engine; \
	done
	@# A second binary for Linux is linked to the C library, which opens CUDA's libraries.
	GOOS=linux GOARCH=amd64 $(GO) build -buildvcs=auto -trimpath -ldflags '-s -w' -o $(DIST)/engine-linux-amd64-cuda ./cmd/engine
	$(GO) run -buildvcs=auto -tags man ./cmd/engine man $(DIST)/man
	mkdir -p $(DIST)/completions
	@set -e; for shell in bash zsh fish powershell; do $(GO) run ./cmd/engine completion $$shell > $(DIST)/completions/engine.$$shell; done
	cp LICENSE README.md CHANGELOG.md $(DIST)/
	cd $(DIST) && find . -type f ! -name SHA256SUMS | LC_ALL=C sort | sed 's,^\./,,' | xargs sha256sum > SHA256SUMS
	@ls -l $(DIST)

.PHONY: licenses
licenses: ## regenerate the licenses of all linked modules, which engine version --licenses prints
	GO=$(GO) scripts/licenses > cli/licenses.txt.new && mv cli/licenses.txt.new cli/licenses.txt

FUZZ_SECONDS ?= 60
.PHONY: check-fuzz
check-fuzz: ## run every fuzz target for FUZZ_SECONDS (60)
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZ_SECONDS)s $$pkg; \
	  done; done

.PHONY: check-vuln
check-vuln: ## look for known vulnerabilities in called code with govulncheck
	GO=$(GO) scripts/check-vuln

.PHONY: lint
lint: $(LINT) ## run go vet and the linters, and check the formatting and the words of texts (scripts/words)
	@files=$$(gofmt -l .); test -z "$$files" || (echo "gofmt: these files are not formatted:"; echo "$$files"; exit 1)
	$(GO) run ./scripts/words .
	$(GO) vet ./...
	$(LINT) run ./...

$(LINT):
	GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	@mv $(BIN)/golangci-lint $@

.PHONY: clean
clean: ## remove build outputs and the demo's output
	rm -rf $(BIN) $(DIST) $(DEMO) $(DEMO)-tokenizer
