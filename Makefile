# Two commands to begin with: make run, make test.

# Go 1.27 has fixes in net/http that 1.26 lacks: where it can be fetched, it is what builds us.
export GOTOOLCHAIN ?= auto

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD   := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)"

.PHONY: run build test needs vet lint generate fuzz linear bench profile screenshot clean soak restarts slow overload mutate

run: build ## serve on the embedded database
	bin/plantstore serve

build: ## leave bin/plantstore, static
	$(BUILD) -o bin/plantstore ./cmd/plantstore

test: needs vet ## run every test with the race detector
	go test -pgo=off -race -run '^$$' ./... >/dev/null # compile with all cores, then run one package at a time
	@mkdir -p bin && rm -f bin/not-tested
	PLANTSTORE_NOT_TESTED=$(CURDIR)/bin/not-tested go test -pgo=off -race -count=1 -p 1 -timeout 9m ./...
	@if [ -s bin/not-tested ]; then cat bin/not-tested; fi

# Programs that tests use. What is missing is installed where apt can do it.
needs:
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || "$$(pg_config --bindir 2>/dev/null)/initdb" --version >/dev/null 2>&1 || ./.ci/install postgresql
	@command -v chromium >/dev/null 2>&1 || ./.ci/install chromium
	@command -v haproxy >/dev/null 2>&1 || [ -x /usr/sbin/haproxy ] || ./.ci/install haproxy
	@command -v mkfs.ext4 >/dev/null 2>&1 || [ -x /usr/sbin/mkfs.ext4 ] || ./.ci/install e2fsprogs
	@command -v strace >/dev/null 2>&1 || ./.ci/install strace
	@command -v fsfreeze >/dev/null 2>&1 || [ -x /usr/sbin/fsfreeze ] || ./.ci/install util-linux
	@command -v slowhttptest >/dev/null 2>&1 || ./.ci/install slowhttptest

# Both the toolchain of go.mod and the machine's own Go must build and vet the code. What is not run
# is not optimised by the profile: that would compile every library once more.
vet:
	go vet -pgo=off ./...
	GOTOOLCHAIN=local go build -pgo=off ./...
	GOTOOLCHAIN=local go vet -pgo=off ./...

lint: vet ## vet, staticcheck, govulncheck
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go run golang.org/x/vuln/cmd/govulncheck@v1.8.0 ./...

generate: ## write the parts of docs and the description that the code decides
	go test ./api -run TestGenerated -update

# Inputs that were worth keeping are in testdata/fuzz of each package; make test runs those.
FUZZTIME ?= 30s
FUZZ      = go test -run '^$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 100x
fuzz: needs ## look for bodies and tokens that break decoding, the engines and the token parser
	$(FUZZ) -fuzz 'FuzzDecode$$' ./internal/plant
	$(FUZZ) -fuzz 'FuzzBearer$$' ./internal/token
	$(FUZZ) -fuzz 'FuzzFraming$$' ./internal/server
	$(FUZZ) -fuzz 'FuzzEngines$$' ./internal/server

linear: needs ## let 64 clients contend under kills for 2 minutes and judge every answer
	go test -race -count=1 -run 'TestLinearizable$$' -v ./internal/e2e -linear 2m

soak: needs ## cut the service off 400 times and count what is lost, in about 4 minutes
	go test -c -o bin/soak ./internal/e2e
	cd internal/e2e && ../../bin/soak -test.run 'TestSoak$$' -test.timeout 60m -soak

restarts: needs ## restart the service 50 times under 500 requests a second, on each engine
	go test ./internal/e2e -count=1 -v -run 'TestRollingRestart$$' -restarts 50

slow: needs ## let slow clients be until they are cut off, in about two minutes
	go test ./internal/e2e -count=1 -v -run 'TestSlowClients$$' -slow 100s

overload: ## ten times what it can do for 30 s, in 256 MiB, on a machine that does nothing else
	PLANTSTORE_TEST_OVERLOAD=30s CI=true go test ./internal/e2e -count=1 -v -run 'TestOverload$$'

# make mutate PKG=./internal/rate N=100 SEED=2 MIN=90
PKG ?= $(shell go list ./client ./cmd/... ./internal/... | grep -v -e /e2e -e /browser -e /testkit)
N ?= 40
SEED ?= 1
MIN ?= 0
mutate: ## count the random faults that the tests of each package detect (PKG, N, SEED, MIN)
	cd bench && go run ./mutate -dir .. -n $(N) -seed $(SEED) -min $(MIN) $(PKG)

bench: ## compare with others, about 6 minutes on a machine that does nothing else
	cd bench && go run . --out ../docs

profile: ## tell the compiler where the time of a create goes, on a machine that does nothing else
	cd bench && go run . --profile ../cmd/plantstore/default.pgo

screenshot: ## make docs/console.png from the real page, in about a minute
	go test ./internal/browser -count=1 -run 'TestScreenshot$$' -screenshot ../../docs/console.png

clean:
	rm -rf bin artifacts
