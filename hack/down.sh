#!/usr/bin/env bash
# `make down`: stops the cluster and the registry of `make up`.
. "$(dirname "$0")/common.sh"
ferry="$CARGO_TARGET_DIR/release/ferry"
if [ -x "$ferry" ]; then "$ferry" down ${PURGE:+--purge}; fi
if [ -d "$cache/registry-${FERRY_REGISTRY_PORT:-5055}" ]; then "$top/hack/registry.sh" stop "${FERRY_REGISTRY_PORT:-5055}"; fi
