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
port=${FERRY_ORACLE_PORT:-17443}
start_apiserver "$port"
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
