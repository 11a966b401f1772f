# make demo   set-up, then the main job on both reference models
# make test   set-up, then lint, types and the fast tests
# make test-kernels  the zoo and the conditions again with other vector units and thread counts: bits must not depend on them
# make fuzz N=2000 S=0   that many random programs from that seed on; the counts go to out/fuzz.json
# make reports  what README.md, docs/results.md and docs/analysis.md show, under reports/, all measured anew (about 80 minutes)
# make fits     what docs/fit.md shows: plans of Llama 3.1 8B on H100, and published runs predicted; nothing is measured
# make analysis docs/analysis.md and the tables of README.md and docs/ from what is under reports/, nothing measured
# make docs     the site, in out/site: docs/ and the API from the docstrings, without network
# make bench    memory, page faults and time: eager, warm eager, captured, checkpointed, planned at four budgets (20 minutes)
# make bench-fit       estimated times against measured ones by kind of op, on idle cores (5 minutes at most, to be measured)
# make bench-startup   until a step is planned, and nine other shapes in 36 steps, counted in eager steps
# make bench-deeper    capture, measure and plan of GPT-2 with 12 to 96 layers
# make bench-budgets   planned steps at five budgets against eager ones
# make bench-compile   lowtide's backend against torch.compile's own memory budget (QUICK=1: one model, few steps)
# make bench-swap      recompute only, swap only and both at four budgets
# make bench-parallel  two ranks: DDP and FSDP2 with all of their switches, and plans at the peaks that they have
# make bench-planner PROBLEMS=DIR   the planner's tables on the public problems, which are not shipped (about 15 minutes)
PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.lowtide-setup
ALL_PEERS := checkpoint, checkpoint every second, compile aot 0.5, compile aot 1.0, compile aot 0.2, compile aot 0.0, compile inductor 1.0, compile inductor 0.5
QUICKLY := --left 75,50,35,20 --peers checkpoint --variants process --rounds 8 --time-limit 12 --at-once 7
VARIANTS := mutwo, chen, no packing, late updates, no addresses, swap, process

.PHONY: bench-fit bench-startup bench-deeper docs setup demo test test-kernels test-slow fuzz lint format reports sweeps largest policies fits analysis bench bench-full bench-capture bench-budgets bench-compile bench-swap bench-parallel bench-planner clean

setup: $(STAMP)

# Written last, so an interrupted set-up is done again; made anew when the dependencies change.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "lowtide needs Python 3.11: '$(PYTHON)' is not on the PATH; set PYTHON=/path/to/python3.11"; exit 1; }
	@command -v g++ >/dev/null || echo "note: no g++ found. lowtide works, but measures memory through torch.profiler instead of its allocator shim: slower, and blind to what other threads allocate. Install g++ and run again to change that."
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m lowtide.planning.optimal.warm
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2 --dist worksteal

KERNELS = tests/tracing/test_equal.py tests/tracing/test_conditions.py

test-kernels: setup
	ATEN_CPU_CAPABILITY=default OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m 'slow or not slow' $(KERNELS)
	ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=2 $(BIN)/pytest -n 2 -m 'slow or not slow' $(KERNELS)

# The reference models one after the other, since they take much memory; then what is left out of make test.
test-slow: setup
	$(BIN)/pytest -m slow tests/slow
	$(BIN)/pytest -m slow -n 2 --dist worksteal --ignore tests/slow

N ?= 2000
S ?= 0

fuzz: setup
	$(BIN)/python -m tests.fuzz --count $(N) --seed $(S) --jobs 2

demo: setup
	$(BIN)/lowtide train resnet152 --batch-size 4 --budget 75% --steps 4 --compare --force --out out/demo/resnet152
	$(BIN)/lowtide train bert-base --batch-size 8 --budget 80% --steps 4 --compare --force --out out/demo/bert-base
	$(BIN)/lowtide sweep resnet152 --batch-sizes 2,4 --budget 75% --steps 2 --op-runs 1 --time-limit 10 --force --out out/demo/sweep/resnet152
	$(BIN)/lowtide sweep bert-base --batch-sizes 4,8 --budget 85%,75% --steps 2 --op-runs 1 --time-limit 10 --force --out out/demo/sweep/bert-base
	@echo "Pictures: memory.png in out/demo/resnet152 and out/demo/bert-base, peaks and latencies in out/demo/sweep"

reports: setup
	$(MAKE) policies largest sweeps
	$(BIN)/lowtide train resnet152 --batch-size 4 --budget 75% --steps 6 --compare --force --out reports/training/resnet152
	$(BIN)/lowtide train bert-base --batch-size 8 --budget 80% --steps 6 --compare --force --out reports/training/bert-base
	$(BIN)/lowtide profile resnet152 --batch-size 4 --force --out reports/resnet152
	$(BIN)/lowtide profile bert-base --batch-size 8 --force --out reports/bert-base
	$(BIN)/lowtide frontier reports/resnet152/problem.json --points 8 --time-limit 120 --force --out reports/frontier/resnet152
	$(BIN)/lowtide frontier reports/bert-base/problem.json --points 8 --time-limit 120 --force --out reports/frontier/bert-base
	$(BIN)/lowtide report reports/resnet152 reports/training/resnet152 reports/frontier/resnet152 reports/sweep/resnet152 --force
	$(BIN)/lowtide report reports/bert-base reports/training/bert-base reports/frontier/bert-base reports/sweep/bert-base --force
	$(BIN)/lowtide animate profiler reports/resnet152 --force --out reports/profiler_demo.gif
	$(BIN)/lowtide animate saved resnet152 --batch-size 4 --budget 75% --force --out reports/memory_saved_demo.gif
	$(MAKE) analysis

# Interrupted, a sweep goes on where it was: run its line without --force. About 30 minutes for both.
# At small batches 60% is less than BERT-Base's parameters and optimizer state alone.
sweeps: setup
	$(BIN)/lowtide sweep resnet152 --batch-sizes 4,8,16,32,64 --budget 60% --steps 3 --op-runs 1 --time-limit 20 --force --out reports/sweep/resnet152
	$(BIN)/lowtide sweep bert-base --batch-sizes 4,8,16,32,64 --budget 85%,70%,60%,60%,60% --steps 3 --op-runs 1 --time-limit 20 --force --out reports/sweep/bert-base

# About 10 minutes for both.
policies: setup
	$(BIN)/lowtide policies resnet152 --batch-size 4 --force --out reports/policies/resnet152
	$(BIN)/lowtide policies bert-base --batch-size 8 --force --out reports/policies/bert-base

# About 30 minutes for both: a step of BERT-Base at batch 70 takes its time.
largest: setup
	$(BIN)/lowtide largest resnet152 --memory-limit 2GiB --within 10 --force --out reports/largest/resnet152
	$(BIN)/lowtide largest bert-base --memory-limit 2.4GiB --within 25 --force --out reports/largest/bert-base

FIT := $(BIN)/lowtide fit llama-3.1-8b --device h100-96 --dtype bf16 --force

fits: setup
	$(FIT) --world 8 --checkpoint selective --batch-size 2 --seq-len 8192 --budget 79GiB,68GiB,47GiB,40GiB,36GiB,23GiB --time-limit 15 --out reports/fit/8-plans
	$(FIT) --world 8 --checkpoint selective --seq-len 8192 --budget 79GiB,47GiB,23GiB --largest length --time-limit 5 --out reports/fit/8-longest
	$(BIN)/lowtide bench fit-public --force --out reports/fit/public

analysis: setup
	$(BIN)/lowtide predictions reports --force --out reports/predictions
	$(BIN)/lowtide analysis reports --force --out docs/analysis.md --tables README.md $(foreach page,results fit compile distributed,--tables docs/$(page).md)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# About twenty minutes: every kind of step in a process of its own, in turn. Seven of BERT-Base at once take about 12 GB.
bench: setup
	$(BIN)/lowtide bench process resnet152 --batch-size 4 $(QUICKLY) --force --out reports/process/resnet152
	$(BIN)/lowtide bench process bert-base --batch-size 8 --dropout 0 $(QUICKLY) --force --out reports/process/bert-base

# All models, peers and variants: hours.
bench-full: setup
	for model in "resnet152 --batch-size 4" "bert-base --batch-size 8 --dropout 0" "gpt2 --batch-size 4 --seq-len 256 --dropout 0" "vit-base --batch-size 8" "unet --batch-size 4"; do \
		$(BIN)/lowtide bench process $$model --left 75,50,35,20 --peers "$(ALL_PEERS)" --variants "$(VARIANTS)" --at-once 7 --force --out reports/bench-full/$${model%% *} || exit 1; \
	done

bench-capture: setup
	$(BIN)/lowtide bench capture resnet152 --batch-size 4 --force --out reports/bench
	$(BIN)/lowtide bench capture bert-base --batch-size 8 --force --out reports/bench

bench-fit: setup
	$(BIN)/lowtide bench fit bert-base:4 gpt2:2 resnet152:2 --runs 3 --force --out reports/calibration

bench-startup: setup
	for measure in before training; do \
		$(BIN)/lowtide bench startup resnet152 --batch-size 4 --budget 75% --measure $$measure --force --out reports/startup/resnet152-$$measure || exit 1; \
		$(BIN)/lowtide bench startup bert-base --batch-size 8 --budget 80% --measure $$measure --force --out reports/startup/bert-base-$$measure || exit 1; \
	done

bench-deeper: setup
	$(BIN)/lowtide bench deeper --layers 12,24,48,96 --force --out reports/deeper

bench-budgets: setup
	$(BIN)/lowtide bench budgets resnet152 --batch-size 4 --left 75,50,35,20,12 --time-limit 30 --force --out reports/budgets/resnet152
	$(BIN)/lowtide bench budgets bert-base --batch-size 8 --left 75,50,35,20,12 --time-limit 30 --force --out reports/budgets/bert-base

# Every kind in a process of its own, up to eight at once: about 18 GB. No plan of forward and backward goes below the complete
# gradients (BERT-Base 1677 MiB with Adam): at 1024 tokens torch's 0.5 is there too, so dropout 0 has 2048, where torch's 0.2 takes
# 1707. GPT-2's peak is where the two gradients of its tied embedding are summed, whatever is recomputed. With dropout 0.1 torch's
# gradients are wrong below 1.0, which is what those runs show.
COMPILE = $(BIN)/lowtide bench compile --force
bench-compile: setup
ifdef QUICK
	$(COMPILE) bert-base --batch-size 8 --dropout 0 --shares 1.0,0.5 --below 92 --rounds 2 --time-limit 5 --out reports/compile/quick
else
	$(COMPILE) bert-base --batch-size 16 --dropout 0 --shares 1.0,0.2 --below 95 --rounds 3 --out reports/compile/bert-base
	$(COMPILE) bert-base --batch-size 8 --dropout 0.1 --shares 1.0,0.5,0.0 --below 92 --rounds 1 --out reports/compile/bert-base-dropout
	$(COMPILE) gpt2 --batch-size 2 --seq-len 256 --dropout 0 --shares 1.0,0.5,0.0 --below 85 --rounds 3 --out reports/compile/gpt2
	$(COMPILE) gpt2 --batch-size 2 --seq-len 256 --dropout 0.1 --shares 1.0,0.5,0.0 --below 85 --rounds 1 --out reports/compile/gpt2-dropout
	$(COMPILE) resnet152 --batch-size 4 --shares 1.0,0.5,0.2 --below 75 --rounds 3 --out reports/compile/resnet152
	$(COMPILE) examples/bert-4-layers/config.json --batch-size 32 --seq-len 128 --shares 1.0,0.5 --below 75 --rounds 3 --executor inductor --out reports/compile/bert-4-layers-inductor
endif

bench-swap: setup
	$(BIN)/lowtide bench swap resnet152 --batch-size 4 --left 75,50,35,20 --rounds 4 --time-limit 12 --force --out reports/swap/resnet152
	$(BIN)/lowtide bench swap bert-base --batch-size 8 --left 75,50,35,20 --rounds 4 --time-limit 12 --force --out reports/swap/bert-base

# Six processes at a time, of BERT-Base about 13 GB. PARALLEL="--ways fsdp --rounds 2 --time-limit 5" is a first look.
PARALLEL ?= --rounds 3 --time-limit 10
bench-parallel: setup
	$(BIN)/lowtide bench parallel examples/gpt2-50m/config.json --batch-size 4 --seq-len 128 $(PARALLEL) --force --out reports/parallel/gpt2-50m
	$(BIN)/lowtide bench parallel bert-base --batch-size 4 --seq-len 128 $(PARALLEL) --force --out reports/parallel/bert-base

PROBLEMS ?= ../shared/problems
PLAN = $(BIN)/lowtide bench planner --counted --force

bench-planner: setup
	$(PLAN) $(PROBLEMS)/vgg16.json $(PROBLEMS)/unet.json $(PROBLEMS)/resnet50.json $(PROBLEMS)/layered100.json --budgets 90%,80%,70%,60%,50% --out reports/planner/graphs
	$(PLAN) $(PROBLEMS)/densenet121.json --budgets 7714700000,5510500000,3306300000,2204200000 --out reports/planner/densenet121
	$(PLAN) $(PROBLEMS)/transformer.json --budgets 6904800000,4932000000,2959200000,1972800000 --out reports/planner/transformer
	$(PLAN) $(PROBLEMS)/resnet32.json --budgets 7042700000,5030500000,3018300000,2012200000 --out reports/planner/resnet32
	$(PLAN) $(PROBLEMS)/bert-base.json $(PROBLEMS)/resnet152.json --above-residents --budgets 75%,50%,35%,20%,12% --out reports/planner/steps
	$(PLAN) --scaling 20000 --out reports/planner/scaling

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv out
