# Tests through a balancer over several servers, of which one is killed every so often. Sourced by conformance.sh.

balancer=
killer=
balanced_port=$((api_port + 1))

# start_balancer : the tests reach the servers through it; a server that does not answer gets no connection, and loses those that it has.
start_balancer() {
  local config="$temporary/haproxy.cfg" number
  install_packages haproxy
  {
    printf 'defaults\n  mode tcp\n  retries 3\n  option redispatch\n  timeout connect 2s\n  timeout client 24h\n  timeout server 24h\n'
    printf 'listen servers\n  bind 127.0.0.1:%s\n' "$balanced_port"
    printf '  option httpchk GET /readyz\n  default-server check check-ssl verify none inter 500ms fall 1 rise 1 on-marked-down shutdown-sessions\n'
    for number in $(seq 0 $((servers - 1))); do printf '  server s%s %s:6443\n' "$number" "$(server_address "$number")"; done
  } >"$config"
  haproxy -db -f "$config" >"$results/balancer.log" 2>&1 9>&- &
  balancer=$!
  # The certificates of the servers name the loopback, too.
  sed -i "s|server: https://.*|server: https://127.0.0.1:$balanced_port|" "$kubeconfig"
  say "the servers are reached through a balancer (log in $results/balancer.log)"
}

server_address() { "$cache/kubectl" --kubeconfig "$kubeconfig" get node "$several-server-$1" -o jsonpath='{.status.addresses[?(@.type=="InternalIP")].address}'; }

# start_killer : kills the process of one server after the other, with SIGKILL; `ferry cluster` starts it again.
start_killer() {
  say "every $kill_every s one server is killed ($results/killed.tsv)"
  (
    number=0
    while sleep "$kill_every"; do
      name="$several-server-$((number++ % servers))"
      pid=$(pgrep -f -- "^$ferry run --data-dir=$clusters/$several/$name " | head -n 1)
      [ -n "$pid" ] && kill -KILL "$pid" && printf '%s\t%s\t%s\n' "$(date -u +%T)" "$name" "$pid" >>"$results/killed.tsv"
    done
  ) 9>&- &
  killer=$!
}

stop_killer() {
  local pid
  # With it goes the sleep that it waits for.
  [ -z "$killer" ] || pkill -P "$killer" || true
  for pid in $killer $balancer; do kill "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
  killer=; balancer=
}
