#!/usr/bin/env bash
# Resolve requirements/*.txt from pyproject.toml: hashes for every platform, no index named.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "uv is needed once: pip install uv" >&2; exit 2; }
compile() {
    local out=$1; shift
    uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
        --custom-compile-command "make requirements" --no-emit-package llama-cpp-python \
        --no-emit-package curtilage -o "requirements/$out" "$@" >/dev/null
    echo "requirements/$out: $(grep -c '==' "requirements/$out") distributions"
}
compile dev.txt pyproject.toml --extra pii --extra llm --extra models --extra relay --extra telemetry --extra tdx --extra nitro \
    --extra sigstore --extra dev
compile build.txt requirements/build.in
compile relay.txt requirements/relay.in
compile enclave.txt requirements/enclave.in
