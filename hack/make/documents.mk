# SPDX-License-Identifier: Apache-2.0

# The documents.

##@ Documents

# Where docs-serve listens, on 127.0.0.1.
DOCS_PORT ?= 8000

.PHONY: docs
docs: ## Make a site of the documents, with search, in bin/site.
	@hack/site/build.sh
	@echo "$(BIN)/site/index.html"

.PHONY: docs-serve
docs-serve: docs ## Serve it on 127.0.0.1 (DOCS_PORT=8000); Ctrl-C ends it.
	@python3 -m http.server --bind 127.0.0.1 --directory $(BIN)/site $(DOCS_PORT)

.PHONY: docs-check
docs-check: ## Fail if a link in the documents leads nowhere, or a page is in no task of README.md.
	@hack/site/build.sh check

.PHONY: recording
recording: tools-test build ## Record the demo for README (with real LXD daemons).
	CAPMAAS_BUILT=1 CAPMAAS_DEMO=1 $(GO_TEST) -count=1 -run TestTheDemoIsRecorded ./test/demo -args -update
