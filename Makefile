# One command each; `make help` lists them.

GO ?= go
# The servers that the tests run against.
SERVERS = postgres postgres15 mysql mariadb
comma := ,
empty :=
space := $(empty) $(empty)
LIST = $(subst $(space),$(comma),$(SERVERS))

.DEFAULT_GOAL := help
.PHONY: help demo test check bench stress servers clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## */  \1\t/' | expand -t 12

demo: ## the main job, to watch: suspend thousands of users, kill the dispatcher, count (DSN=postgres://... for a server)
	cd testdata && CGO_ENABLED=0 $(GO) run ./iam/demo

test: servers ## all tests with the race detector; installs and starts the servers it needs
	$(GO) test -race ./...
	cd testdata && $(GO) run ./servers/with -servers $(LIST) -- $(GO) test -race -p 2 -parallel 4 -timeout 15m ./...

check: bin/staticcheck ## format, vet, staticcheck, import rules, tidy modules
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not formatted: $$unformatted"; exit 1; fi
	$(GO) vet ./... && cd testdata && $(GO) vet ./...
	bin/staticcheck ./... && cd testdata && ../bin/staticcheck ./...
	$(GO) mod tidy -diff && cd testdata && $(GO) mod tidy -diff
	$(GO) test -count=1 -run 'TestRooms|TestCore|TestDocs' .
	CGO_ENABLED=0 $(GO) test -count=1 ./...

bench: servers ## ratios against the same transaction without the library, on PostgreSQL, MySQL and MariaDB
	cd testdata && for server in postgres mysql mariadb; do \
		$(GO) run ./servers/with -servers $$server -- $(GO) run ./bench -servers $$server || exit 1; done

stress: servers ## 200,000 events and more, 16 producers in several processes, and the controls that must lose
	cd testdata && for server in postgres mysql mariadb; do \
		$(GO) run ./servers/with -servers $$server -- $(GO) run ./stress -server $$server -events 200000 || exit 1; done
	cd testdata && $(GO) run ./servers/with -servers postgres -- $(GO) run ./stress -events 40000 -control all

servers:
	@testdata/servers/install.sh $(SERVERS) pgbouncer

bin/staticcheck: testdata/go.mod
	cd testdata && $(GO) build -o ../bin/staticcheck honnef.co/go/tools/cmd/staticcheck

clean: ## remove what make built
	rm -rf bin
