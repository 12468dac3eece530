# `make` lists the targets; a line `name: ## words` is one.
# The work is in deploy/*.sh and images/build.sh, which can be run by hand as well and say in their heads what they heed.

SHELL := /bin/bash
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help up down clean quick test test-mcp test-e2b test-kubectl test-notebooks check coverage bench drills dashboards soak test-newer test-v2 test-compose test-systemd test-images test-first-hour test-fleet audit lock images schema fmt docs test-panel vendor sbom dev build build-no-cache pull prod-build prod-up test-error restart logs logs-tail watch shell health stats info security-check scan prune

ARGS ?=
PADDOCK = "$${PADDOCK_VENV:-.venv}/bin/paddock"

help: ## list the targets (what plain `make` does)
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

up: ## from nothing to a sandbox that is kept: engine, venv, image, guard, daemon, specs/quickstart.yaml, proxy
	@deploy/engine.sh start
	@deploy/venv.sh
	@images/build.sh python agent
	@deploy/levels.sh guard
	@deploy/daemon.sh start
	@deploy/quickstart.sh
	@deploy/levels.sh proxy
	@deploy/levels.sh show

down: ## stop the daemon; sandboxes stay as they are
	@deploy/daemon.sh stop

clean: ## remove everything that the other targets made: sandboxes, state, images, venv, caches
	@deploy/clean.sh

quick: ## the tests of two minutes: no engine, SQLite only, few examples (ARGS='tests/plan -k name' for some)
	@deploy/test.sh --quick $(ARGS)

test: ## every test, on a real engine and on both stores (ARGS='tests/plan -k name' for some)
	@deploy/test.sh $(ARGS)

test-e2b: ## E2B's own clients and agents on them, the newest and of a year ago, and hostile ones (ARGS='-k javascript' for some)
	@deploy/test.sh --e2b $(ARGS)

test-kubectl: ## kubectl 1.20, 1.32 and 1.36 against a daemon and real sandboxes (ARGS='-k diff' for some)
	@deploy/test.sh --kubectl $(ARGS)

test-mcp: ## MCP clients of others against sandboxes: conformance, inspector, agents (ARGS='-k inspector' for some)
	@deploy/test.sh --mcp $(ARGS)

test-notebooks: ## cells of notebooks in code contexts give what Jupyter's kernel gives (ARGS='-k charts' for some)
	@deploy/notebooks.sh $(ARGS)

coverage: ## every test with the lines that it runs: a table of those that none runs (ARGS=tests/plan for some)
	@deploy/test.sh --coverage $(ARGS)

check: ## lint, format and types (and shell scripts, where shellcheck is installed)
	@deploy/check.sh

bench: ## the figures: ratios within one run, on a real engine
	@deploy/test.sh --bench $(ARGS)

drills: ## break everything on an engine of its own; a table of faults and of the times to recover
	@deploy/test.sh --drills $(ARGS)

dashboards: ## draw the dashboards of a busy Paddock, to be looked at (ARGS='--minutes 2 folder'; .cache/dashboards)
	@deploy/test.sh --dashboards $(ARGS)

soak: ## half an hour of random operations, then nothing may have grown (SOAK_MINUTES=5 for less)
	@deploy/test.sh --soak $(ARGS)

test-newer: ## the engine's contract and all end-to-end tests on a newer engine, of Debian's packages (ENGINE=26 or 28, STORE=overlay2 or containerd)
	@PADDOCK_LAB_ENGINE=$(ENGINE) PADDOCK_LAB_STORE=$(STORE) deploy/test.sh --newer $(ARGS)

test-v2: ## what depends on cgroups, on a host with cgroup v2: a virtual machine with trixie's kernel and engine
	@deploy/test.sh --v2 $(ARGS)

test-compose: ## run public projects' Compose files in sandboxes; build Paddock's own image, and start it by Compose
	@deploy/test.sh --compose $(ARGS)

test-systemd: ## install, guard, upgrade and take away the service under a systemd of its own (in namespaces; not the host's)
	@deploy/test.sh --systemd $(ARGS)

test-images: ## build the larger images (data, node, bun, deno, toolchain, model-tiny: some minutes), and look into them
	@deploy/test.sh --images $(ARGS)

test-first-hour: ## the first steps of an agent developer after `make up`, from a fresh clone on an engine without images (minutes)
	@deploy/test.sh --first-hour $(ARGS)

test-frontdoor: ## SSH and previews with OpenSSH, rsync, git, Chromium, Caddy, nginx and Jupyter, sshd beside (ARGS='-k jupyter' for some)
	@deploy/test.sh --frontdoor $(ARGS)

test-fleet: ## several hosts: three engines as one swarm in network namespaces, daemons on them, one PostgreSQL
	@deploy/test.sh --fleet $(ARGS)

test-panel: ## the web panel in a real browser (Debian's chromium), on a real daemon and engine
	@deploy/test.sh --panel $(ARGS)

vendor: ## compare the panel's vendored modules with their packages (ARGS=--write to write them anew)
	@deploy/vendor.sh $(ARGS)

audit: ## known vulnerabilities of images, locks and vendored files (ARGS='--db folder --sarif file'; 3: it could not be looked up)
	@deploy/audit.sh $(ARGS)

sbom: ## bills of materials of images, locks and vendored files: CycloneDX in .cache/sbom (ARGS='--folder F IMAGE' for others)
	@deploy/sbom.sh $(ARGS)

lock: ## write the lock files anew from pyproject.toml (ARGS=--upgrade for the newest)
	@deploy/lock.sh $(ARGS)

images: ## build the container images that are out of date (ARGS='--force python' to build again)
	@images/build.sh $(or $(ARGS),all)

schema: ## write specs/schema/paddock.schema.json anew, after a change of a spec's fields
	@"$${PADDOCK_VENV:-.venv}/bin/python" -m controller.documents.json_schema > specs/schema/paddock.schema.json

docs: ## write the README files' tables and the dashboards anew, after a change of fields, settings, metrics, alerts or commands
	@"$${PADDOCK_VENV:-.venv}/bin/python" -m deploy.docs
	@"$${PADDOCK_VENV:-.venv}/bin/python" -m deploy.grafana

fmt: ## format the code and repair what the linter can
	@deploy/check.sh --fix

dev: ## what `up` does, with the tools for work on Paddock itself
	@$(MAKE) up
	@deploy/venv.sh --dev

build: ## build the images that `up` needs (`images`: all)
	@images/build.sh $(or $(ARGS),python egress agent)

build-no-cache: ## the same, although they are up to date: for newer packages
	@images/build.sh --force base $(or $(ARGS),python egress agent)

pull: ## take the base from a registry, and build the images on it
	@PADDOCK_BASE=pull images/build.sh --force base $(or $(ARGS),python egress agent)

prod-build: ## build the image of Paddock itself, for deploy/compose.yaml
	@images/build.sh daemon

prod-up: prod-build ## start Paddock with PostgreSQL, Prometheus and Grafana, by Compose
	@docker compose -f deploy/compose.yaml up -d $(ARGS)

test-error: ## run the tests again that failed last
	@deploy/test.sh --last-failed --last-failed-no-failures none $(ARGS)

restart: ## restart the daemon; sandboxes run on
	@deploy/daemon.sh restart

logs: ## the daemon's log
	@deploy/daemon.sh logs $(ARGS)

logs-tail: ## follow the daemon's log
	@deploy/daemon.sh logs --follow --tail 100

watch: ## show the sandboxes, and each change
	@$(PADDOCK) get sandboxes --watch $(ARGS)

shell: ## a shell in a sandbox (ARGS=NAME; quickstart)
	@$(PADDOCK) shell $(or $(ARGS),quickstart)

health: ## if the daemon runs and is ready
	@deploy/daemon.sh status

stats: ## use of CPU, memory, network, disk and processes
	@$(PADDOCK) top $(ARGS)

info: ## the host as Paddock sees it
	@$(PADDOCK) describe host $(ARGS)

security-check: ## check this host, then attest each running sandbox (ARGS=NAME: one)
	@$(PADDOCK) doctor
	@for each in $(or $(ARGS),$$($(PADDOCK) get sandboxes -o jsonpath='{.items[?(@.status.phase=="Running")].metadata.name}')); do \
		$(PADDOCK) attest "$$each" || exit; done

scan: audit ## the same as `audit`

prune: ## list the volumes that nothing uses, and remove them after a question (ARGS=-y: none; ARGS=NAME: one)
	@deploy/prune.sh $(ARGS)
