# Routes of the gateway: how long one takes until it is in force, and what 5,000 of them take.
say "routes in force, and 5,000 of them"
gateway_core=0-$(($(nproc) - 1))
. "$top/hack/bench/lib/gateway.sh"
up "http://$address:8201/"
routes() { "${inside[@]}" python3 -u "$top/hack/bench/routes.py" "$@" "$alone" "$address" "$folder"; }
routes change | tee -a "$work/lines"
before=$(resident $gateway) began=$(ticks $gateway)
routes many
sleep 10
line "gateway with 5,000 routes more" $(memory $gateway) more_mb "$(awk -v a="$before" -v b="$(resident $gateway)" 'BEGIN {printf "%.1f", b - a}')" \
  processor_seconds "$(awk -v t=$(($(ticks $gateway) - began)) -v h="$(getconf CLK_TCK)" 'BEGIN {printf "%.1f", t / h}')"
began=$(ticks $gateway)
routes change | tee -a "$work/lines"
line "gateway, a change among 5,000 routes" processor_ms "$(awk -v t=$(($(ticks $gateway) - began)) -v h="$(getconf CLK_TCK)" 'BEGIN {printf "%.1f", t / h / 300 * 1000}')"
end $gateway
gateway; up "http://$address:8201/"; sleep 10
line "gateway with 5,000 routes, started anew" $(memory $gateway)
