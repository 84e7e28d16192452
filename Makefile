# Every target sets up what it needs by itself: `make demo` on a fresh clone is enough.
PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
MODEL ?=
# Newer versions of a library than the pinned one report home (docs/decisions/0026).
export ORT_DISABLE_TELEMETRY := 1
# SETUP with the groups of requirements/ that a target needs.
SETUP := $(PYTHON) -m tools.bootstrap
ALL := runtime format image test lab fuzz balancers lint
PARTS := sandbox wire attest inference policy client transparency lab cli relay enclave_server
CODE := $(PARTS) dev deploy/containers deploy/image benchmarks tools tests

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo test test-processes test-timing test-exhaustive test-removal
.PHONY: test-all lint audit
.PHONY: format bench train-guard train-router fuzz vectors conformance interop
.PHONY: leak ledger outside netsep-test image containers compose-test compose-soak requirements clean

help: ## Say what each target does
	@echo "Curtilage: answers regulated questions locally, and sends the rest to an attested enclave."
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'
	@echo
	@echo "Pass arguments with ARGS, for example:"
	@echo "  make demo ARGS=\"--ask 'My card 4111 1111 1111 1111 was refused, what now?'\""
	@echo "  make test ARGS=\"tests/wire -k chunked\""

setup: ## Virtual environment, libraries, engine, model: everything that runs
	@$(SETUP) runtime $(if $(filter setup,$(MAKECMDGOALS)),--offer)

setup-dev: ## What `make setup` does, and what every other target installs
	@$(SETUP) $(ALL)

demo: ## Start enclave, relay and client on loopback and ask real questions (MODEL=FILE or an address)
	@$(SETUP)
	@$(BIN)/curtilage demo $(if $(MODEL),--model "$(MODEL)") $(ARGS)

# Half of the time before the first test goes to compiling them, unless that is kept.
KEPT := env -u PYTHONDONTWRITEBYTECODE

test: ## Run the tests that start no program and measure no time, on every processor
	@$(SETUP) runtime test
	@$(KEPT) $(BIN)/python -m pytest -n auto --dist worksteal -m "not process and not timing" $(ARGS)

test-processes: ## Run the tests that start programs or open sockets, a file to a processor
	@$(SETUP) runtime test lab fuzz balancers
	@$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m "process and not timing" $(ARGS)

test-timing: ## Run the tests that measure time: alone on the machine
	@$(SETUP) runtime test
	@$(BIN)/python -m pytest -m timing $(ARGS)

test-exhaustive: ## Try every cut and every flipped byte, where `make test` tries a sample (nightly)
	@$(SETUP) runtime test
	@$(KEPT) $(BIN)/python -m pytest -n auto --dist worksteal --exhaustive -m exhaustive $(ARGS)

test-removal: ## Take refusals out, a sample, one by one; their tests must fail
	@$(SETUP) runtime test lab fuzz balancers
	@$(BIN)/python tools/mutants.py $(ARGS)

test-all: test test-processes test-timing test-exhaustive test-removal ## Run all of these

lint: ## Format check, lint, types (mypy, pyright), import contracts, docstrings
	@$(SETUP) runtime test lab fuzz lint
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy
	@$(BIN)/pyright
	@$(BIN)/lint-imports
	@$(BIN)/interrogate -q $(PARTS)

audit: ## What the promise rests on; run the contracts and tests that prove it
	@$(SETUP) runtime test
	@$(BIN)/python tools/audit.py $(ARGS)

format: ## Format the code
	@$(SETUP) runtime format
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

bench: ## Measure everything, or ARGS="wire attest relay starve added memory engine forgetting long path decisions egress routing routing_trace boundary"; only if named: isolation serving jitter (root), "starve --shipped"
	@$(SETUP) runtime test lab
	@PYTHONPATH=dev:tests $(BIN)/python -m benchmarks $(ARGS)

train-guard: ## Train the model that finds names and topics again (an hour; needs the data sets; ARGS=--multilingual)
	@PYTHON=$(PYTHON) lab/training/train.sh $(ARGS)

train-router: ## Learn the router's weights again (minutes; needs the data sets), and measure them
	@$(SETUP) runtime lab
	@$(BIN)/python -m lab.training.router.train \
		--data $(or $(CURTILAGE_SHARED),../shared)/data --out client/curtilage/client/routing/weights

fuzz: ## Coverage-guided bytes at every parser (ARGS="--seconds 600" each)
	@$(SETUP) runtime test fuzz
	@$(BIN)/python tests/fuzz/run.py $(ARGS)

vectors: ## Make our own test vectors again and compare, then everybody else's
	@$(SETUP) runtime test
	@$(BIN)/python tests/vectors/make.py
	@$(BIN)/python -m pytest tests/conformance/wire tests/wire/test_shaped_vectors.py $(ARGS)

conformance: ## One suite for two relays, built in and nginx, and one for two balancers, nginx and Envoy
	@$(SETUP) runtime test balancers
	@$(BIN)/python -m pytest tests/conformance/relay tests/conformance/balancer $(ARGS)

interop: ## Speak to peers in Go and Node, both directions (installs them; minutes)
	@$(SETUP) runtime test
	@$(BIN)/python tests/conformance/peers/run.py $(ARGS)

leak: ## What sizes and gaps of answers tell an observer, for several frames and paces
	@$(SETUP) runtime test lab
	@PYTHONPATH=dev:tests $(BIN)/python -m benchmarks.leak $(ARGS)

ledger: ## Compare every hop's bytes with docs/metadata.yaml
	@$(SETUP) runtime test
	@$(BIN)/python -m pytest tests/privacy -k ledger $(ARGS)

outside: ## Watch every program at work for 90 s from outside: names, connections, files
	@$(SETUP) runtime test
	@$(BIN)/python -m pytest tests/privacy/test_outside.py $(ARGS)

netsep-test: ## Client, relay and enclave in three networks: whose address and what text is on which link (root)
	@$(SETUP) runtime test
	@$(BIN)/python -m pytest tests/netsep $(ARGS)

image: ## Build the enclave's measured image (ARGS="--twice" compares two builds; docs/image.md)
	@$(SETUP) runtime image
	@$(BIN)/python -m deploy.image build $(ARGS)

containers: ## Build the container images and their bills of materials (ARGS="--twice" compares two builds; docs/containers.md)
	@$(SETUP) runtime image
	@$(BIN)/python -m deploy.containers build $(ARGS)

compose-test: ## Bring every compose file up for real, ask questions, break parts (root on Debian; docs/containers.md)
	@$(SETUP) runtime image
	@PYTHONPATH=dev $(BIN)/python -m tools.compose_test $(ARGS)

compose-soak: ## Ask for 30 minutes through two operators' containers while each part that they pass is killed in turn
	@$(SETUP) runtime image
	@PYTHONPATH=dev $(BIN)/python -m tools.compose_test --soak 30 $(ARGS)

requirements: ## Resolve the pinned requirements again (needs uv)
	@tools/requirements.sh

clean: ## Remove the virtual environment and every cache of the tree
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis benchmarks/out
