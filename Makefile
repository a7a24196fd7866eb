# One command each; `make help` lists them.

GO ?= go
# The servers that the tests run against.
SERVERS = postgres postgres15 mysql mariadb
comma := ,
empty :=
space := $(empty) $(empty)
LIST = $(subst $(space),$(comma),$(SERVERS))

# The library, its metrics, the operator's command, the tests, and the benchmark with
# the libraries beside it.
MODULES = . otel cmd/outboxctl testdata testdata/bench

.DEFAULT_GOAL := help
.PHONY: help demo outboxctl test fuzz check vuln bench stress prove servers clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  \1\t/' | expand -t 12

demo: ## the main job, to watch: suspend thousands of users, kill the dispatcher, count (DSN=postgres://... for a server)
	cd testdata && CGO_ENABLED=0 $(GO) run ./iam/demo

outboxctl: ## build the operator's command, one static binary, bin/outboxctl
	cd cmd/outboxctl && CGO_ENABLED=0 $(GO) build -trimpath -o ../../bin/outboxctl .

test: servers ## all tests with the race detector; installs and starts the servers it needs
	$(GO) test -race ./...
	cd otel && $(GO) test -race ./...
	cd cmd/outboxctl && $(GO) test -race ./...
	cd testdata && $(GO) run ./servers/with -servers $(LIST) -- $(GO) test -race -p 2 -parallel 4 -timeout 30m ./...
	cd testdata/bench && $(GO) test -race ./...

check: bin/staticcheck ## format, vet, staticcheck, tidy modules, import rules, exported API, docs
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted"; exit 1; fi
	for module in $(MODULES); do (cd $$module && $(GO) vet ./... && $(CURDIR)/bin/staticcheck ./... && $(GO) mod tidy -diff) || exit 1; done
	$(GO) test -count=1 . # rooms, API and docs, first since they are quick
	CGO_ENABLED=0 $(GO) test -count=1 ./...
	cd otel && CGO_ENABLED=0 $(GO) test -count=1 ./...

# Apart from check, since it asks vuln.go.dev.
vuln: bin/govulncheck ## known vulnerabilities in what the code calls; needs the network
	for module in $(MODULES); do (cd $$module && $(CURDIR)/bin/govulncheck ./...) || exit 1; done

bench: servers ## ratios against the same transaction without the library, on PostgreSQL (with other libraries beside), MySQL and MariaDB
	cd testdata/bench && for server in postgres mysql mariadb; do $(GO) run . -servers $$server || exit 1; done

stress: servers ## 200,000 events and more in each isolation level, a hot aggregate, the controls that must lose, ten million rows, an event among them, 200 dispatchers killed
	cd testdata && for server in postgres mysql mariadb; do \
		$(GO) run ./servers/with -servers $$server -- sh -ec '\
			$(GO) run ./stress -server $$0 -isolation all -events 200000 -handled 10; \
			$(GO) run ./stress -server $$0 -isolation all -events 40000 -aggregates 1 -processes 4 -pause 0; \
			$(GO) run ./stress -server $$0 -control all -events 40000 -handled 10; \
			$(GO) test ./matrix -run "TestReadingStaysFast/^$$0\$$" -rows 10000000 -timeout 1h -count 1 -v; \
			$(GO) test ./ctl -run "TestWhyReadsFewRows/^$$0\$$" -rows 10000000 -timeout 1h -count 1 -v; \
			$(GO) test ./crash -run "TestDispatchersThatAreKilled/^$$0\$$" -kills 200 -restarts 10 -timeout 1h -count 1 -v' $$server || exit 1; done

# `make test` runs some hundred sequences of each kind. LONG=100 takes some hours.
LONG ?= 10
fuzz: ## many more random sequences of all that can happen to a dispatcher than `make test` (LONG=10: half an hour)
	$(GO) test ./events -run TestALaneIsInOnePlace -seeds $$((1000 * $(LONG))) -timeout 24h
	cd testdata && $(GO) test ./model -rapid.checks $$((2000 * $(LONG))) -timeout 24h

prove: ## models of the fences, every order of steps, and the controls that must lose
	@docs/proof/prove.sh

servers:
	@testdata/servers/install.sh $(SERVERS) pgbouncer

bin/staticcheck: testdata/go.mod
	cd testdata && $(GO) build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

bin/govulncheck: testdata/go.mod
	cd testdata && $(GO) build -o ../bin/govulncheck golang.org/x/vuln/cmd/govulncheck

clean: ## remove what make built
	rm -rf bin
