#!/usr/bin/env bash
# Resolve requirements/*.txt from pyproject.toml: hashes for every platform, no index named.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "uv is needed once: pip install uv" >&2; exit 2; }
# The engine's package requires it for a cache that is not used, and inference/native.py keeps it from being
# imported: what runs goes without. The developers' tests import the package as it is.
unused=(--no-emit-package diskcache)
compile() {
    local out=$1; shift
    uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
        --custom-compile-command "make requirements" --no-emit-package llama-cpp-python \
        --no-emit-package curtilage -o "requirements/$out" "$@" >/dev/null
    echo "requirements/$out: $(grep -c '==' "requirements/$out") distributions"
}
# What runs: every extra but the developers'. dev.txt adds their tools to exactly the same versions.
extras=(pii llm models relay telemetry tdx nitro sigstore)
compile runtime.txt pyproject.toml "${extras[@]/#/--extra=}" "${unused[@]}"
compile dev.txt pyproject.toml "${extras[@]/#/--extra=}" --extra=dev -c requirements/runtime.txt
compile build.txt requirements/build.in
compile relay.txt requirements/relay.in
compile enclave.txt requirements/enclave.in
