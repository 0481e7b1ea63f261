#!/usr/bin/env bash
# `make fuzz`: every fuzz target for a while (SECONDS_EACH, 100 unless told), from the corpus that is kept.
. "$(dirname "$0")/common.sh"
cd "$top/fuzz"
cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
for target in $(sed -n 's/^name = "\(.*\)"$/\1/p' Cargo.toml | tail -n +2); do
  say "$target"
  # What the run finds worth keeping goes beside the build; the kept corpus stays small.
  mkdir -p "$cache/fuzz/$target"
  cargo +nightly fuzz run "$target" "$cache/fuzz/$target" "corpus/$target" -- -max_total_time="${SECONDS_EACH:-100}" -max_len=65536 -timeout=10 -rss_limit_mb=2048
done
