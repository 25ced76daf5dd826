# Every target calls a step of .ci/run or one go command: what passes here
# passes there.
.DEFAULT_GOAL := help
.PHONY: help check test race cuda gpu-bundle fuzz bench bench-compare golden generate notice release demo demo-target demo-large demo-lm measurements measurements-age module ci

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

check: ## formatting, vet, static analysis, import rules, short tests
	.ci/run fmt vet staticcheck errcheck lint short

test: ## all tests, and what was skipped and why
	.ci/run test

race: ## short tests under the race detector: of the concurrent packages, and of the others in turn
	.ci/run race

cuda: ## the CUDA device on an emulated GPU
	.ci/run cuda

gpu-bundle: ## one archive that measures talf on a machine with a GPU: docs/gpu.md
	rm -rf .cache/gpu-bundle && mkdir -p .cache/gpu-bundle
	CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CURDIR)/compute/cuda/internal/driver/include" \
		go test -tags gpu -c -trimpath -ldflags '-s -w' -o .cache/gpu-bundle/talf-gpu.test ./internal/e2e
	go run ./compute/cuda/cudatest/mkdriver .cache/gpu-bundle/emulated
	cp tools/gpubundle/run.sh tools/gpubundle/*.py .cache/gpu-bundle/
	tar -C .cache -czf .cache/gpu-bundle.tar.gz gpu-bundle
	@ls -l .cache/gpu-bundle.tar.gz
	@test $$(wc -c <.cache/gpu-bundle.tar.gz) -le 67108864 || { echo "the bundle has more than 64 MiB"; exit 1; }

fuzz: ## every fuzz target for some seconds
	.ci/run fuzz

bench: ## benchmarks, ten runs each, to .cache/bench/new.txt
	mkdir -p .cache/bench
	go test -run '^$$' -bench . -count 10 ./... | tee .cache/bench/new.txt

bench-compare: ## make bench-compare REF=main: passes of this tree and of REF in turn; fails if ours are slower by 15%
	@test -n "$(REF)" || { echo "make bench-compare REF=<commit>"; exit 2; }
	mkdir -p .cache/bench
	rm -rf .cache/bench/ref && git worktree prune && git worktree add --detach .cache/bench/ref $(REF)
	cd .cache/bench/ref && go build -C lab -o ../../lab-old ./cmd/lab
	git worktree remove --force .cache/bench/ref
	go build -C lab -o ../.cache/bench/lab-new ./cmd/lab
	go run -C tools ./benchgate "$(CURDIR)/.cache/bench/lab-old" "$(CURDIR)/.cache/bench/lab-new" --shape 10m --reps 10

golden: ## rewrite the committed files that tests compare with the code
	cd lab && go test ./target -run TestEmbeddedTargetFollowsTheRecipe -update

generate: ## run the code generators
	go generate ./...
	CGO_ENABLED=1 CGO_CFLAGS="-O2 -I$(CURDIR)/compute/cuda/internal/driver/include" go generate -tags gpu ./compute/cuda
	.ci/run generated

notice: ## the licences of everything that talf links, to NOTICE, as releases carry them
	go run -C tools ./licences -notice >NOTICE

release: ## archives, checksums, lists of components and a container image of the current commit, to dist
	go run -C tools ./release -out ../dist

demo: ## the quickstart
	go run ./cmd/talf quickstart

demo-target: ## train the embedded model again, about an hour on two cores
	go build -C lab -o ../.cache/demo/ ./cmd/lab
	.cache/demo/lab target --texts .cache/demo
	rm -rf .cache/demo/model
	go run ./cmd/talf train --kind lm --model internal/demo/target --data .cache/demo/train.jsonl --out .cache/demo/lm --resume \
		--steps 3000 --rows 2048 --lr 2e-3 --min-lr 0.05 --warmup 100 --held-out 0.01 --eval-seqs 100 --seed 1 --export .cache/demo/model
	cp .cache/demo/model/model.safetensors internal/demo/target/

demo-large: ## the models and prompts that measurements are made with, to .cache/demo-large; nothing is fetched
	go build -C lab -o ../.cache/demo-large/ ./cmd/lab
	.cache/demo-large/lab unpack .cache/demo-large

demo-lm: demo-large ## train the small language model of the measurements again, to the bit: five minutes on two cores
	go build -o .cache/demo-large/talf ./cmd/talf
	.cache/demo-large/talf generate --model .cache/demo-large/gsm10m --prompts .cache/demo-large/prompts/training.jsonl \
		--max-tokens 128 --method ar --batch 48 --out .cache/demo-large/lm-answers.jsonl
	sort -t: -k2,2n .cache/demo-large/lm-answers.jsonl >.cache/demo-large/lm-sorted.jsonl
	rm -rf .cache/demo-large/trained
	.cache/demo-large/talf train --kind lm --model .cache/demo-large/gsm10m-lm --data .cache/demo-large/lm-sorted.jsonl \
		--template '{prompt}' --answer-field text --out .cache/demo-large/lm --resume --steps 1800 --rows 1024 --lr 4e-3 --min-lr 0.05 \
		--warmup 100 --held-out 0.02 --eval-seqs 64 --seed 1 --export .cache/demo-large/trained
	cmp .cache/demo-large/trained/model.safetensors .cache/demo-large/gsm10m-lm/model.safetensors

measurements: ## the tables of docs/measurements that need nothing but the repository, again, and what README.md quotes of them
	go run -C lab ./cmd/lab measurements $(TABLES)

measurements-age: ## which of these tables are older than the code that they measure
	go run -C lab ./cmd/lab measurements --age

# On make's command line, PATH hides the search path of programs: real is what it was.
real := $(shell echo "$$PATH")
module: ## make module PATH=github.com/you/talf: set the module's path wherever the repository names it
	@test "$(origin PATH)" = 'command line' || { echo "make module PATH=github.com/you/talf"; exit 2; }
	@PATH='$(real)' && export PATH && go run -C tools ./module '$(PATH)'

ci: ## all steps of .ci/run
	.ci/run
