#!/usr/bin/env bash
# Other people's clients against `ferry apiserver` alone: kubectl, the Python client and the one for Node.
#   hack/clients.sh            all of them
#   hack/clients.sh kubectl    one of them: kubectl, python or node
. "$(dirname "$0")/common.sh"
export PATH="$cache:$PATH"
cd "$top"
clients=$cache/clients
port=${FERRY_CLIENTS_PORT:-17444}
start_apiserver "$port"
cat >"$work/config" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: ferry, cluster: {server: "https://127.0.0.1:$port", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admintoken}}, {name: bob, user: {token: bobtoken}}]
contexts: [{name: admin, context: {cluster: ferry, user: admin}}, {name: bob, context: {cluster: ferry, user: bob}}]
current-context: admin
YAML
export KUBECONFIG=$work/config WORK=$work

# lacks CLIENT : says what is missing for it, if anything is.
lacks() {
  case $1 in
    kubectl) [ -x "$cache/kubectl" ] || echo "there is no kubectl of 1.32 or newer" ;;
    python) [ -x "$clients/python/bin/python" ] || echo "there is no Python client; see $clients/python.log" ;;
    node) { on_path node >/dev/null && [ -d "$clients/node/node_modules" ]; } || echo "there is no client for Node, or no Node" ;;
    *) fail "no such client: $1" ;;
  esac
}
try() {
  case $1 in
    kubectl) bash "$top/hack/clients/kubectl.sh" ;;
    python) "$clients/python/bin/python" "$top/hack/clients/python.py" ;;
    node) cp "$top/hack/clients/node.mjs" "$clients/node/run.mjs" && node "$clients/node/run.mjs" ;;
  esac
}
passed=0 failed=()
for client in ${1:-kubectl python node}; do
  reason=$(lacks "$client")
  if [ -n "$reason" ]; then
    # It counts as passed here, and is taken off in the summary of hack/test.sh: as in the other tests.
    echo "test $client ... skipped: $reason"
    [ -z "${FERRY_SKIPS:-}" ] || printf 'clients::%s\t%s\n' "$client" "$reason" >>"$FERRY_SKIPS"
    passed=$((passed + 1))
  elif try "$client"; then
    echo "test $client ... ok"
    passed=$((passed + 1))
  else
    echo "test $client ... FAILED"
    tail -n 20 "$work/log"
    failed+=("$client")
  fi
done
result=ok
if [ ${#failed[@]} -gt 0 ]; then result=FAILED; printf '\nfailures:\n'; printf '    %s\n' "${failed[@]}"; fi
printf '\ntest result: %s. %s passed; %s failed; 0 ignored\n' "$result" "$passed" "${#failed[@]}"
[ ${#failed[@]} = 0 ]
