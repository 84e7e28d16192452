#!/usr/bin/env bash
# Resolve requirements/*.txt: hashes for every platform, no index named, one version of a package in all files.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v uv >/dev/null || { echo "uv is needed once: pip install uv" >&2; exit 2; }
# Required and never used: the engine's package names the first for a cache, and inference/native.py keeps it from
# being imported; the Hub's library names the second for a protocol of its own, and client/local downloads by HTTP;
# spaCy names the third and imports none of it.
unused=(--no-emit-package diskcache --no-emit-package hf-xet --no-emit-package setuptools)
constraints=()
compile() {
    local out=requirements/$1; shift
    uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
        --annotation-style=line --custom-compile-command "make requirements" --no-emit-package llama-cpp-python \
        --no-emit-package curtilage "${constraints[@]}" -o "$out" "$@" >/dev/null
    constraints+=(-c "$out")
    echo "$out: $(grep -c '==' "$out") distributions"
}
# What runs: every extra; the demo goes without those that it does not use.
demo=(pii llm relay tdx nitro)
compile runtime.txt pyproject.toml "${demo[@]/#/--extra=}" --extra={gpu,models,telemetry,sigstore} "${unused[@]}"
compile demo.txt pyproject.toml "${demo[@]/#/--extra=}" "${unused[@]}"
# What the client image holds: not what only a terminal or the download of models needs, nor what is not for Linux.
elsewhere=(rich pygments markdown-it-py mdurl huggingface-hub httpx2 httpx2-jsfetch httpcore2 truststore fsspec colorama)
compile client.txt pyproject.toml "${demo[@]/#/--extra=}" "${unused[@]}" "${elsewhere[@]/#/--no-emit-package=}"
# What each target adds to it.
compile test.txt --group test
for group in format image lab fuzz balancers lint; do
    compile "$group.txt" --group "$group" "${unused[@]}"
done
compile package.txt requirements/package.in
compile build.txt requirements/build.in
compile relay.txt requirements/relay.in
compile enclave.txt requirements/enclave.in
