# Penstock's tasks. `make` lists the ten of daily work (###), `make help-all` the rest. Nothing but Python 3.11, git and make is needed; Spark's targets need Java 17.
# With a C compiler and Python's headers, setup and run compile the codec.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
URL ?= http://127.0.0.1:8080
# `penstock` and `penstock-codec` are in this repository, and not taken from a registry.
LOCK := uv pip compile -q --generate-hashes --no-emit-index-url --no-emit-package penstock --no-emit-package penstock-codec --python-version 3.11 --custom-compile-command "make lock"
CODEC := penstock_codec/pyproject.toml penstock_codec/setup.py $(wildcard penstock_codec/*.py penstock_codec/src/*.[ch])
# If no usable codec is compiled and can be, this runs the installation although nothing has changed. A build of an
# earlier version, or for another machine, is not usable.
COMPILED := $(shell PENSTOCK_CODEC=auto $(BIN)/python -m penstock_codec 2>/dev/null | grep -x 'codec: compiled')
COMPILE := $(if $(COMPILED),,$(shell command -v cc >/dev/null && $(PYTHON) -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null && echo compile-codec))
SANITIZED := -std=c11 -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined
# `$(call install,WHAT)` by uv, which takes a fifth of pip's time. pip installs the same where there is no wheel of uv, or uv fails: it does not
# read pip's settings. Spark's wheel is made here, and to compress it takes longer than all the rest.
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
UV := $(VENV)/uv/bin/uv
install = { [ -x $(UV) ] || $(PIP) --target $(VENV)/uv --only-binary :all: --require-hashes -r requirements/installer.lock; } \
	&& $(UV) pip install -q --python $(BIN)/python --no-build-isolation --config-settings-package 'pyspark:--build-option=--compression=stored' $(1) \
	|| { echo "pip installs, which takes some minutes longer: uv could not"; $(PIP) --no-compile --no-build-isolation $(1); }
ARGS ?=
# Tests at once: two for each of the two cores that we count on, since many of them wait for processes. Three used
# them to 73 %.
TEST_WORKERS ?= 4

# With it, each of the many processes that tests start compiles all code again: a third of the processor time of its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: compile-codec compile-tests help help-all request-path setup run test test-long test-quick check lint types imports architecture docs format demo cluster bench bench-quick bench-cluster bench-peers fairness flame-graph load loadtest power-loss-long crash-long codec-asan codec-fuzz codec-bench sim sim-long seeds-long chaos chaos-short upgrade faults-long full-disk fuzz-long state-machine-long contract-long scale-long missing-files-long skew-long image-check deploy-check dist release sbom audit-dependencies lock clean docs-write exactly-once-long sink-kills spark-env spark-cluster push-kills minio-tests kafka-clients kafka-systems kafka-suites kafka-differential airflow-tests catalog-tests workers clients-tests clients-mutants bench-typed-read bench-ingest ingest-year minimal-debian golden lines-of-code console-tests capacity-costs

help: ## List the ten targets of daily work
	@awk 'BEGIN {FS = ":.*### "} /^[a-z-]+:.*### / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "make help-all lists the rest: long runs, benches, packages"

help-all: ## List all targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.all ### Make .venv with everything locked: server, client, Spark, tests
	@$(BIN)/python -m penstock_codec
	@echo "ready: try  make run  or  $(BIN)/penstock --help"

run: $(VENV)/.serve ### Serve on 127.0.0.1:8080 (ARGS="--port 9000" for more)
	@$(BIN)/python -m penstock_codec
	@exec $(BIN)/penstock serve $(ARGS)

test: $(VENV)/.all ### Run all tests but the long ones
	$(BIN)/pytest -n $(TEST_WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

compile-tests: $(VENV)/.all # once, and what they import; each worker of a first run would do it by itself
	$(BIN)/pytest --collect-only -qq

test-long: $(VENV)/.all ## Run the tests that `make test` leaves out, for they are long
	$(BIN)/pytest -m long -n $(TEST_WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

test-quick: $(VENV)/.all ### Run the tests that take no processes and no Java
	$(BIN)/pytest -m "not slow and not spark and not e2e and not long" $(ARGS)

check: lint types architecture docs ### Lint, types, architecture and documents

lint: $(VENV)/.all ## Lint and format check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.all ## Type check, strictly
	$(BIN)/mypy

imports: $(VENV)/.all ## Check who imports whom
	$(BIN)/lint-imports --no-logo

architecture: imports ## Check who imports whom, doors, dead modules, idle libraries
	$(BIN)/pytest tests/architecture $(ARGS)

request-path: $(VENV)/.all ## List the files of our code that a produce, a fetch and a long poll visit
	@$(BIN)/python -m tests.architecture.request_path

lines-of-code: $(VENV)/.all ## Files, lines, and lines without blanks, comments, docstrings and imports, of each package and the tests
	@$(BIN)/python -m tests.architecture.lines_of_code

docs: $(VENV)/.all ## Check the documents against the code
	$(BIN)/pytest tests/docs $(ARGS)

docs-write: $(VENV)/.all ### Write the generated parts of documents again
	$(BIN)/python -m node.setup.settings_page >docs/reference/settings.md.tmp
	@mv docs/reference/settings.md.tmp docs/reference/settings.md
	$(BIN)/python -m spark_ingest.config.page >docs/reference/ingest-settings.md.tmp
	@mv docs/reference/ingest-settings.md.tmp docs/reference/ingest-settings.md
	$(BIN)/python -m tests.clients.generated
	$(BIN)/python -m tests.console.runbook
	$(BIN)/python -m tests.docs.test_client_docs
	$(BIN)/python -m tests.docs.test_metrics_docs
	$(BIN)/python -m tests.docs.test_architecture
	@if [ -x "$${CHROMIUM:-/usr/bin/chromium}" ]; then $(MAKE) -s console-tests ARGS=--docs; fi

format: $(VENV)/.all ### Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: ### Play the whole job on 336,776 real flights: produce, long-poll, tier, ingest with Spark
	@$(PYTHON) -m loadtests.demo.java
	@$(MAKE) --no-print-directory -s $(VENV)/.all
	@$(BIN)/python -m loadtests.demo $(ARGS)

cluster: $(VENV)/.all ### ZooKeeper and three nodes on this machine until Ctrl-C (ARGS="--nodes 5 --shards 2 --port 9000")
	@$(BIN)/python -m loadtests.cluster $(ARGS)

bench: $(VENV)/.all ### Measure against a bare server in the same run
	@$(BIN)/python -m penstock_codec --measured
	@$(BIN)/python -m loadtests.bench --servers penstock,penstock-2ms,penstock-10ms,bare $(ARGS)

bench-cluster: $(VENV)/.all ## Measure three nodes and ZooKeeper beside a single node: rates, failover, catch-up, 3,000 partitions
	@$(BIN)/python -m penstock_codec --measured
	@$(BIN)/python -m loadtests.cluster_bench $(ARGS)

capacity-costs: $(VENV)/.all ## Measure what requests of different sizes cost, for the capacity page and `penstock doctor --plan` (ARGS=--draw-only)
	@$(BIN)/python -m loadtests.capacity $(ARGS)

bench-quick: $(VENV)/.all ## The same in about a minute, without slow disks
	@$(BIN)/python -m penstock_codec --measured
	@$(BIN)/python -m loadtests.bench --quick --servers penstock,bare $(ARGS)

fairness: $(VENV)/.all ## Nine clients of a node with and without a tenth that has a hundred times their connections (ARGS="--only few --rounds 9")
	@$(BIN)/python -m loadtests.fairness.__main__ $(ARGS)

bench-peers: $(VENV)/.all ## Measure beside Kafka, NATS JetStream and Redis streams (ARGS="--quick": three minutes)
	@$(BIN)/python -m penstock_codec --measured
	@$(BIN)/python -m loadtests.bench $(ARGS)

bench-typed-read: $(VENV)/.all ## Processor time of a typed read by Spark beside spark.read.parquet of the same million rows
	@$(BIN)/python -m penstock_codec --measured
	@$(BIN)/python -m tests.spark_ingest.typed_read_cost

bench-ingest: $(VENV)/.all ## Ingestion beside DuckDB, PyArrow and plain Spark, of the same rows (ARGS="--quick --without-spark": minutes less)
	@$(BIN)/python -m penstock_codec --measured
	@$(BIN)/python -m loadtests.ingest_bench $(ARGS)

ingest-year: $(VENV)/.all ## A year of hourly runs of ingestion in virtual time, with upkeep once a day: files, objects and operations stay bounded
	PENSTOCK_TEST_INGEST_HOURS=$(or $(HOURS),8760) $(BIN)/pytest -s -q tests/spark_ingest/upkeep/test_year.py --timeout 7200 $(ARGS)

load: $(VENV)/.all ## Locust with producers and checking consumers against URL
	$(BIN)/locust -f loadtests/locust/locustfile.py --host $(URL) $(ARGS)

loadtest: $(VENV)/.all ## Locust with a user for each hot path against a fresh node (ARGS="--scenario spike --users 100 --seconds 60")
	@$(BIN)/python -m loadtests.locust $(ARGS)

power-loss-long: $(VENV)/.all ## Power losses at every operation, and full tables of disk errors
	PENSTOCK_TEST_POWER_LOSS_EVERY=1 $(BIN)/pytest tests/engine/crash --timeout 3600 $(ARGS)

crash-long: $(VENV)/.all ## kill -9 under load, 100 times
	PENSTOCK_TEST_KILLS=100 $(BIN)/pytest -m "" tests/e2e -k kill --timeout 3600 $(ARGS)

sim: $(VENV)/.all ## Whole clusters in virtual time: SEED=7 replays one run, SEEDS=1000 runs many, from FROM on
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),1000) --from $(or $(FROM),0)) $(ARGS)

sim-long: $(VENV)/.all ## The same for MINUTES (60), one new seed after another
	@$(BIN)/python -m tests.simulation --minutes $(or $(MINUTES),60) --from $(or $(FROM),100000) $(ARGS)

seeds-long: $(VENV)/.all ## 20,000 seeds of the simulator, by the workers of the tests
	PENSTOCK_TEST_SIM_SEEDS=20000 $(BIN)/pytest tests/simulation/test_seeds.py -n $(TEST_WORKERS) --dist loadgroup $(ARGS)

chaos: $(VENV)/.all ## Real faults at a cluster in network namespaces, as root: RUNS (1) of SECONDS_EACH (60); FAULTS=kill,pause
	@$(BIN)/python -m tests.chaos --runs $(or $(RUNS),1) --seconds-each $(or $(SECONDS_EACH),60) $(if $(FAULTS),--faults $(FAULTS)) $(ARGS)

chaos-short: $(VENV)/.all ## Three of these faults, 20 s each, and clusters with planted bugs that must be caught; `make test` has a shorter form
	PENSTOCK_TEST_CHAOS=1 $(BIN)/pytest -m "" tests/chaos/test_chaos.py $(ARGS)

exactly-once-long: $(VENV)/.all ## Each recipe (at most, at least, exactly once) under KILLS (200) kills of workers, shards and the node; judged (ARGS=--cluster: three nodes)
	@$(BIN)/python -m tests.exactly_once --kills $(or $(KILLS),200) $(ARGS)

sink-kills: $(VENV)/.all ## A Spark stream into a topic under kills of drivers, executors and Python workers; judged (ARGS="--kills 20 --minutes 5")
	@$(BIN)/python -m tests.spark_ingest.sink_kills $(ARGS)

spark-env: $(VENV)/.all ## Pack this environment for Spark's executors: build/spark-env.tar.gz
	@mkdir -p build
	@$(BIN)/python -m spark_ingest.spark.packing build/spark-env.tar.gz

spark-cluster: $(VENV)/.all ## One run of ingestion on a standalone cluster of Spark whose executors are killed; judged (ARGS="--records 10000000 --kills 6")
	@$(BIN)/python -m tests.spark_ingest.cluster_kills $(ARGS)

push-kills: $(VENV)/.all ## Push in a cluster whose leaders are killed, to a receiver that is slow and answers 429 and 500: KILLS (20); judged
	@$(BIN)/python -m tests.e2e.cluster.push_kills --kills $(or $(KILLS),20) $(ARGS)

minio-tests: $(VENV)/.all ## The S3 store on a real MinIO server, which Go builds (minutes): contract, uploads in parts, restore, ingestion
	@$(BIN)/python -m tests.e2e.minio

kafka-clients: $(VENV)/.all ## Clients of six languages and Kafka's tools against one node, two shards and three nodes (half an hour; Java, Maven, Go, Node, Rust)
	@$(BIN)/python -m tests.e2e.kafka.client_stories $(ARGS)
	@$(BIN)/python -m tests.e2e.kafka.console_tools

kafka-systems: $(VENV)/.all ## Kafka Connect with PostgreSQL, a schema registry, Kafka Streams, Flink, Spark's Kafka source and MirrorMaker 2 against nodes (half an hour; Java, Maven)
	@$(BIN)/python -m tests.e2e.kafka.connect
	@$(BIN)/python -m tests.e2e.kafka.jdbc_sink
	@$(BIN)/python -m tests.e2e.kafka.schema_registry
	@$(BIN)/python -m tests.e2e.kafka.flink
	@$(BIN)/python -m tests.e2e.kafka.streams
	@$(BIN)/python -m tests.e2e.kafka.spark_kafka
	@$(BIN)/python -m tests.e2e.kafka.mirror_maker $(ARGS)

kafka-suites: $(VENV)/.all ## The test suites of librdkafka and of franz-go against a node (half an hour; Go, Rust, C)
	@$(BIN)/python -m tests.e2e.kafka.suites $(ARGS)

kafka-differential: $(VENV)/.all ## The same requests to Apache Kafka and to a node, compared (minutes; Java 17, Maven)
	@$(BIN)/python -m tests.e2e.kafka.differential

catalog-tests: $(VENV)/.all ## Spark reads the Iceberg and Delta tables of a job through a catalog; it is installed into build/ (minutes, Maven)
	@$(BIN)/python -m tests.spark_ingest.spark_catalogs

airflow-tests: $(VENV)/.all ## The DAGs of docs/ingest-operate.md run in Airflow, which is installed into build/airflow (minutes)
	@$(BIN)/python -m tests.spark_ingest.airflow_runs

golden: $(VENV)/.all ## Compare what nodes answer with tests/golden/exchanges, byte for byte (ARGS=--write records it)
	@$(BIN)/python -m tests.golden $(ARGS)

clients-tests: $(VENV)/.all ## The clients in TypeScript and Go: built, packed, judged by the same stories as the Python client, measured (Node, npm, Go; Chromium if PENSTOCK_BROWSER_PYTHON has Playwright)
	npm --prefix clients/typescript ci --no-audit --no-fund
	npm --prefix clients/typescript run build
	npm --prefix build/clients install --no-audit --no-fund --no-save deno@2.9.6 bun@1.4.5 publint@0.3.25 @arethetypeswrong/cli@0.18.5 esbuild@0.28.2
	cd clients/go && go vet ./... && go test -race -timeout 120s -run Test ./... && go test -run '^$$' -fuzz FuzzRecord -fuzztime 10s .
	PATH="$$PATH:$(CURDIR)/build/clients/node_modules/.bin" $(BIN)/pytest -m "" tests/clients -s $(ARGS)

clients-mutants: $(VENV)/.all ## Planted faults in the clients in TypeScript and Go, each caught by a story (half an hour; ARGS="--language go --only token")
	npm --prefix clients/typescript ci --no-audit --no-fund
	npm --prefix clients/typescript run build
	$(BIN)/python -m tests.clients.mutants $(ARGS)

workers: $(VENV)/.all ## Workers in bash, Python, Node, Go, Java and Rust share a topic while they come, go, hang and die: SECONDS (60); judged
	@$(BIN)/python -m tests.workers --seconds $(or $(SECONDS),60) $(ARGS)

full-disk: $(VENV)/.all ## Nodes on file systems of 24 MB, ext4 and tmpfs, filled to the last byte under every kind of operation; as root
	$(BIN)/pytest -m "" tests/full_disk tests/engine/format/test_spare_files.py --timeout 600 $(ARGS)

upgrade: $(VENV)/.all ## Three nodes of FROM (the latest tag, or the commit of this version's changelog) under load, replaced one by one by these, and back; judged
	@$(BIN)/python -m tests.upgrade $(if $(FROM),--from $(FROM)) $(ARGS)

faults-long: $(VENV)/.all ## A thousand stories of producers over bad links to a node that is killed
	PENSTOCK_TEST_FAULT_STORIES=1000 $(BIN)/pytest -m "" tests/faults/test_exactly_once.py -s --timeout 14400 $(ARGS)

state-machine-long: $(VENV)/.all ## A partition, its producers and their twins, by a hundred times as many steps
	PENSTOCK_TEST_EXAMPLES=4000 $(BIN)/pytest tests/engine/crash/test_state_machine.py tests/engine/crash/test_producers_twin.py -k 'twin_is or broken_partition' --timeout 7200 $(ARGS)

fuzz-long: $(VENV)/.all ## Fuzz every decoder with a hundred times as many examples
	PENSTOCK_FUZZ_EXAMPLES=6000 $(BIN)/pytest tests/fuzz tests/gateway/kafka/test_oracle.py --timeout 7200 $(ARGS)

contract-long: $(VENV)/.all ## Schemathesis against a node of two shards, ten minutes
	PENSTOCK_FUZZING_S=600 $(BIN)/pytest tests/e2e/fuzzing $(ARGS)

scale-long: $(VENV)/.all ## 10,000 segments, waiters, partitions, connections, topics and keys instead of 250
	PENSTOCK_TEST_SCALE=10000 $(BIN)/pytest -m "" tests/scale -s --timeout 3600 $(ARGS)

missing-files-long: $(VENV)/.all ## Remove, empty, swap and grow 10,000 files of data directories and stores instead of 250
	PENSTOCK_TEST_SCALE=10000 $(BIN)/pytest tests/missing_files --timeout 7200 $(ARGS)

skew-long: $(VENV)/.all ## 10,000 runs with nodes whose clocks differ instead of 100
	PENSTOCK_TEST_SKEW_RUNS=10000 PENSTOCK_TEST_SCALE=10000 $(BIN)/pytest tests/skew --timeout 7200 $(ARGS)

codec-asan: $(VENV)/.all ## The tests of the compiled codec under AddressSanitizer and UBSan (gcc)
	@mkdir -p build
	$(CC) $(SANITIZED) -fvisibility=hidden -fPIC -shared -I$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))') penstock_codec/src/*.c -o build/codec-asan.so
	LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		PENSTOCK_TEST_CODEC=$(CURDIR)/build/codec-asan.so $(BIN)/pytest tests/penstock_codec tests/spark_ingest/decode/test_compiled_rows.py $(ARGS)

codec-fuzz: ## libFuzzer at the compiled codec for FUZZ_S (300) seconds, its findings and corpus in build/codec-fuzz (needs clang)
	@command -v clang >/dev/null || { echo "clang is needed: apt-get install clang"; exit 1; }
	@mkdir -p build/codec-fuzz/corpus
	clang $(SANITIZED) -fsanitize=fuzzer -Werror tests/penstock_codec/fuzz.c $(filter-out $(wildcard penstock_codec/src/module*.c),$(wildcard penstock_codec/src/*.c)) -o build/codec-fuzz/run
	cd build/codec-fuzz && ./run -max_total_time=$(or $(FUZZ_S),300) -max_len=2048 -dict=$(CURDIR)/tests/penstock_codec/fuzz.dict corpus

flame-graph: $(VENV)/.all ## Draw stacks of py-spy (record --format raw) as a picture: TITLE=... STACKS=FILE PICTURE=FILE
	@$(BIN)/python -m loadtests.bench.flame_graph "$(TITLE)" < $(STACKS) > $(PICTURE)

codec-bench: $(VENV)/.all ## Processor time of the compiled codec beside its plain Python twin, in this process
	@$(BIN)/python -m tests.penstock_codec.measure $(ARGS)

minimal-debian: $(VENV)/.all ## The README's commands in a Debian 12 without Java, compiler and jq (debootstrap, as root; some 20 minutes)
	$(BIN)/python -m tests.minimal_debian $(ARGS)

deploy-check: $(VENV)/.all ## Render the Helm chart; the schemas of Kubernetes and Compose and systemd judge deploy/ (minutes the first time: Go builds helm)
	@$(BIN)/python -m tests.operations.deploy_check $(ARGS)

image-check: ## Build the Dockerfile with buildah and try the image (Debian, as root; minutes); OUT=DIR keeps it and its SBOM
	tests/e2e/image.sh

dist: $(VENV)/.serve ## Build the wheels of the distributions into dist/
	@rm -rf dist
	$(BIN)/python -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w dist ./penstock_codec ./penstock .
	@rm -rf build penstock/build penstock_codec/build
	@ls dist

release: $(VENV)/.all build/auditwheel/bin/auditwheel ## Wheels, SBOM, checksums and notes of HEAD into release/, twice with the same bytes, installed and tried (minutes; PLATFORM=linux_x86_64 without auditwheel's word)
	@$(BIN)/python -m tests.distributions.release --auditwheel build/auditwheel/bin/auditwheel $(if $(PLATFORM),--platform $(PLATFORM)) $(ARGS)

build/auditwheel/bin/auditwheel:
	@$(PYTHON) -m venv build/auditwheel
	build/auditwheel/bin/pip install -q --disable-pip-version-check auditwheel==6.8.2

sbom: $(VENV)/.all ## CycloneDX list of the packages installed in ENVIRONMENT (.venv): build/sbom.json
	@mkdir -p build
	@$(BIN)/cyclonedx-py environment --output-reproducible --of JSON -o build/sbom.json $(or $(ENVIRONMENT),$(VENV))

audit-dependencies: $(VENV)/.all ## Compare the locked packages with published advisories: 1 if one has any, 3 if the audit did not run
	@$(BIN)/python -m tests.distributions.audit_dependencies

lock: ## Resolve the locked requirements again (needs uv)
	$(LOCK) pyproject.toml penstock/pyproject.toml --group build --group load --group dev --extra encryption --extra otel --extra spark --extra iceberg --extra delta --extra formats --extra oidc --extra patterns -o requirements/all.lock
	$(LOCK) pyproject.toml penstock/pyproject.toml --group build --extra oidc --extra patterns -c requirements/all.lock -o requirements/serve.lock
	echo uv | $(LOCK) - -o requirements/installer.lock

clean: ## Remove .venv and what tests and runs leave; not penstock-data
	rm -rf $(VENV) build dist penstock/build penstock_codec/build penstock_codec/*.so *.egg-info penstock*/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis demo-output bench-output chaos-output spark-warehouse

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "on Debian: apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

$(VENV)/.serve: requirements/serve.lock pyproject.toml penstock/pyproject.toml $(CODEC) $(COMPILE) | $(VENV)/bin/python
	@$(call install,--require-hashes -r requirements/serve.lock)
	@$(call install,--no-deps -e ./penstock_codec -e ./penstock -e .)
	@touch $@

$(VENV)/.all: requirements/all.lock $(VENV)/.serve
	@echo "installing the locked requirements, Spark among them: about a minute the first time"
	@$(call install,--require-hashes -r requirements/all.lock)
	@touch $@

console-tests: $(VENV)/.all ## Stories of the console in Chromium against a real node, with axe-core (Debian's chromium; ARGS="--docs" writes the pictures of the documentation)
	@$(PYTHON) -m venv .venv-console
	@.venv-console/bin/pip install -q playwright==1.65.2
	@test -f .venv-console/axe.min.js || (cd .venv-console && npm pack -s axe-core@4.14.1 && tar xzf axe-core-4.14.1.tgz --strip-components=1 package/axe.min.js)
	@.venv-console/bin/python -m tests.console --python $(BIN)/python --axe .venv-console/axe.min.js $(ARGS)
