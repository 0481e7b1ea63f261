# The API server alone.
say "the API server alone"
begin=$(now)
alone
trap 'end $server ${many:-}' EXIT
line "API server, start to ready" ms "$(since "$begin")"
line "API server, just started" $(memory $server)
# What the start took is given back within seconds.
sleep 10
line "API server, idle" $(memory $server)
"$examples/load" --server 127.0.0.1:18443 --token bench-token --connections 32 --count 5000 | tee -a "$work/lines"
line "API server, after the load" $(memory $server)

say "10,000 simulated nodes, without controllers"
"$ferry" node simulate --nodes 10000 --kubeconfig "$alone" >"$work/many.log" 2>&1 &
many=$!
until grep -q registered "$work/many.log"; do sleep 0.2; done
# Every node has its turn once in ten seconds: the first makes the lease, the others renew it.
sleep 15
renewals() { curl -sk -H "Authorization: Bearer bench-token" https://127.0.0.1:18443/metrics | awk '/^apiserver_request_total/ && /leases/ && /PATCH/ {sum += $NF} END {printf "%d", sum}'; }
before=($(renewals) $(ticks $server) $(ticks $many)); sleep 20
after=($(renewals) $(ticks $server) $(ticks $many))
line "10,000 nodes, leases renewed" per_second "$(((after[0] - before[0]) / 20))"
line "10,000 nodes, the API server" cpu_percent "$(share $((after[1] - before[1])) 20)"
line "10,000 nodes, the simulator" cpu_percent "$(share $((after[2] - before[2])) 20)"
line "10,000 nodes, the API server" $(memory $server)
line "10,000 nodes, the simulator" $(memory $many)
