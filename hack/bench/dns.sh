# The cluster's DNS beside CoreDNS, each on one core; the questions come from the other.
install_packages dnsperf
. "$top/hack/bench/lib/wires.sh"
build_upstream coredns
say "DNS: names of the cluster"
fresh
alone "${inside[@]}"
script objects services 10000 10 "$alone"
seq 0 9999 | shuf --random-source=<(yes) | awk '{print "s" $1 ".default.svc.cluster.local A"}' >"$folder/names"
printf 'cluster.local:5302 {\n  bind %s\n  errors\n  cache 30\n  kubernetes cluster.local {\n    kubeconfig %s\n  }\n  loadbalance\n}\n' "$address" "$alone" >"$folder/Corefile"
answers() { # NAME PORT COMMAND...
  local name=$1 port=$2 round; shift 2
  "${inside[@]}" taskset -c 1 "$@" >"$folder/dns-$name.log" 2>&1 &
  dns=$!
  perf() { "${inside[@]}" taskset -c 0 dnsperf -s "$address" -p "$port" -d "$folder/names" "$@"; }
  until perf -n 1 -l 1 2>/dev/null | grep -q 'NOERROR'; do kill -0 $dns || fail "$name ended; see $folder/dns-$name.log"; sleep 0.5; done
  perf -l 3 -c 8 -q 100 &>/dev/null
  for round in 1 2 3; do
    local before; before=$(ticks $dns)
    perf -l 5 -c 8 -q 100 >"$folder/said" 2>/dev/null
    awk -v t=$(($(ticks $dns) - before)) -v h="$(getconf CLK_TCK)" '/Queries completed/ {n = $3} /Queries per second/ {r = $4} END {printf "%.0f %.0f\n", n / (t / h), r}' "$folder/said" >>"$folder/answers-$name"
  done
  perf -l 5 -c 8 -Q 5000 -v 2>/dev/null | awk '$1 == ">" && $2 == "NOERROR" {print $NF * 1e6}' | sort -n >"$folder/latencies"
  middle() { sort -n -k"$1" "$folder/answers-$name" | sed -n 2p | cut -d' ' -f"$1"; }
  line "DNS, $name" per_second_of_processor "$(middle 1)" per_second "$(middle 2)" p50_us_at_5000 "$(awk '{a[NR] = $1} END {print a[int(NR * 0.5)]}' "$folder/latencies")" \
    p99_us_at_5000 "$(awk '{a[NR] = $1} END {print a[int(NR * 0.99)]}' "$folder/latencies")" $(memory $dns)
  end $dns; dns=
}
answers ferry 5301 "$ferry" dns --kubeconfig "$alone" --listen "$address:5301"
answers coredns 5302 "$suite/bin/coredns" -conf "$folder/Corefile"
