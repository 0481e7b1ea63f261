#!/usr/bin/env bash
# `make audit`: what the dependencies may be (deny.toml), and whether any has a known vulnerability.
. "$(dirname "$0")/common.sh"
cd "$top"
export PATH="$PATH:$cache/tools/bin"
on_path cargo-deny >/dev/null || cargo install --quiet --locked --root "$cache/tools" cargo-deny
cargo deny check licenses bans sources
# The list of advisories is a git repository elsewhere.
if cargo deny fetch db >"$cache/advisories.log" 2>&1; then cargo deny check advisories
else say "advisories: not checked, because their database cannot be fetched from here (see $cache/advisories.log)"; fi
