#!/usr/bin/env bash
# Plays the exchanges recorded from kube-apiserver v1.37 against `ferry apiserver` alone.
#   hack/oracle.sh            all cases; fails when one differs that hack/oracle-differs.txt does not name
#   hack/oracle.sh NAME       the cases with NAME in their name, differences shown
. "$(dirname "$0")/common.sh"
oracle=${FERRY_ORACLE_DIR:-$top/../shared/oracle}
if [ ! -x "$oracle/replay" ]; then
  say "skipped: the recorded exchanges are not at $oracle (set FERRY_ORACLE_DIR)"
  exit 0
fi
cargo build --quiet -p ferry
work=$(mktemp -d)
port=${FERRY_ORACLE_PORT:-17443}
# The exchanges name these tokens and ids.
printf '%s\n' 'admintoken,admin,admin-uid,"system:masters"' 'bobtoken,bob,bob-uid,"devs"' >"$work/tokens"
"$CARGO_TARGET_DIR/debug/ferry" apiserver --data-dir "$work/data" --bind-address 127.0.0.1 --secure-port "$port" --token-auth-file "$work/tokens" >"$work/log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true; rm -rf "$work"' EXIT
for _ in $(seq 300); do
  curl -skf -o /dev/null "https://127.0.0.1:$port/readyz" && break
  kill -0 $server 2>/dev/null || { cat "$work/log"; fail "the API server ended"; }
  sleep 0.1
done
play=("$oracle/replay" --server "https://127.0.0.1:$port" --token admin=admintoken,bob=bobtoken -k)
if [ -n "${1:-}" ]; then "${play[@]}" --only "$1" -v; exit; fi

"${play[@]}" >"$work/out" 2>&1 || true
tail -n 1 "$work/out"
kill -0 $server 2>/dev/null || { tail -n 20 "$work/log"; fail "the API server ended during the exchanges"; }
sed -n 's/^FAIL *\([^ :]*\).*/\1/p' "$work/out" | sort >"$work/differs"
{ grep -v '^#' "$top/hack/oracle-differs.txt" || true; } | sort >"$work/known"
new=$(comm -23 "$work/differs" "$work/known")
gone=$(comm -13 "$work/differs" "$work/known")
[ -z "$gone" ] || printf 'these agree now; take them out of hack/oracle-differs.txt:\n%s\n' "$gone"
if [ -n "$new" ]; then printf 'these differ and did not before:\n%s\n' "$new"; exit 1; fi
