# What a change has to pass, and what it is measured by. `make check test` is
# the short form of what .ci/run does on a fresh machine.

GO       ?= go
GOLANGCI ?= golangci-lint
# The version that .golangci.yml is written for.
GOLANGCI_VERSION := v2.12.2

TARGETS  := linux/arm64 darwin/arm64 windows/amd64
# The packages in which goroutines meet.
RACE     := ./loop/... ./store/... ./runtime ./runtime/native ./runtime/worker ./adapters/... ./internal/cli ./internal/tools ./internal/mcp
FUZZTIME ?= 60s
KILLS    ?= 200
DAMAGES  ?= 250

.PHONY: build check fmt vet lint cross test replay race bench fuzz kill damage guests

## build: bin/dsh, one static binary
build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w" -o bin/dsh ./cmd/dsh

## check: format, vet, lint, cross builds; ends in a tree that it did not change
check:
	@before=$$(git diff HEAD | sha256sum); \
	$(MAKE) --no-print-directory fmt vet lint cross && \
	if [ "$$before" != "$$(git diff HEAD | sha256sum)" ]; then \
		git diff --stat; echo "check: files were generated anew: commit them"; exit 1; \
	fi
	@echo "check: good"

fmt:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "gofmt -w these:"; echo "$$bad"; exit 1; }
	$(GO) mod tidy -diff

vet:
	$(GO) vet ./...
	cd internal/peers && $(GO) vet ./...

lint:
	@command -v $(GOLANGCI) >/dev/null || { echo "lint: no $(GOLANGCI): $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)"; exit 1; }
	$(GOLANGCI) run ./...

## cross: every package and test type-checks, and dsh links, for each target;
## nobody runs it, and not to optimise takes a quarter less time
cross:
	@set -e; for t in $(TARGETS); do \
		echo "cross: $$t"; \
		export CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/}; \
		$(GO) vet -gcflags='all=-N -l' ./...; \
		$(GO) build -gcflags='all=-N -l' -o /dev/null ./cmd/dsh; \
	done

## test: the README's test command
test:
	$(GO) test ./...

## replay: runs every decision again that the tests of the command left in a log,
## on both engines and the interpreter; make replay KEPT=DIR takes those that
## DSH_TEST_KEEP=DIR kept before
replay:
	@kept=$(KEPT); if [ -z "$$kept" ]; then \
		kept=$$(mktemp -d); trap 'rm -rf "$$kept"' EXIT; \
		DSH_TEST_KEEP=$$kept $(GO) test -count 1 ./cmd/dsh || exit 1; \
	fi; \
	DSH_TEST_REPLAY=$$kept $(GO) test -count 1 -v -run '^TestReplayEverySession$$' ./cmd/dsh

## race: the race detector; of the command, the tests in which signals, kills and swaps meet
race:
	$(GO) test -race -short $(RACE)
	$(GO) test -race -short -run '^Test(EveryBoundary|ACompactionThatIsKilled|HundredWaits|AlternatingFailures|LongTurn)' ./cmd/dsh

## bench: every benchmark, and a decision beside other ways to make one
bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...
	cd internal/peers && $(GO) test -run '^$$' -bench .

## fuzz: every fuzz target for FUZZTIME each; make fuzz FUZZTIME=5s is the short form
fuzz:
	.ci/fuzz $(FUZZTIME)

## kill: SIGKILLs at any moment of 16 sessions that append, and a quarter as
## many of the process that keeps a log which others append to, and as many of a
## repair; make kill KILLS=40 takes half a minute
kill:
	DSH_KILL_ROUNDS=$(KILLS) $(GO) test ./store/badger -run '^Test(Kill|SalvageIsKilled)$$' -v -count 1 -timeout 30m
	DSH_KILL_ROUNDS=$$(($(KILLS) / 4)) $(GO) test ./store/shared -run '^TestTheKeeperIsKilled$$' -v -count 1 -timeout 30m

## damage: so many random damages of a log's files, one at a time
damage:
	DSH_DAMAGE_ROUNDS=$(DAMAGES) $(GO) test ./store/badger -run '^TestDamage$$' -count 1 -timeout 60m

## guests: builds every guest from its source and compares it with what is committed
guests:
	@set -e; for b in $$(git ls-files 'guests/*/build.sh' 'examples/*/build.sh' 'hostabi/*/build.sh' runtime/runtimetest/testdata/build.sh); do echo "$$b --check"; $$b --check; done
