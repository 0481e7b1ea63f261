# The gateway beside nginx and haproxy: each with one worker on one core, in front of the same backend; the load and the backend have the other core.
# Requests per second of processor time are compared: others may be busy on this machine.
install_packages nghttp2-client openssl
unpack_packages "$cache/haproxy" haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1 libpcre2-8-0 libssl3 libsystemd0 libcap2 libzstd1 liblz4-1 liblzma5 libgcrypt20
say "the gateway beside nginx and haproxy"
gateway_core=1
. "$top/hack/bench/lib/gateway.sh"
nginx proxy 1 "upstream backend { server $address:9000; keepalive 256; keepalive_requests 1000000000; }
  server { listen $address:8001; listen $address:8002 ssl http2; ssl_certificate $folder/cert.pem; ssl_certificate_key $folder/key.pem;
    location / { proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host \$host; } }"
cat >"$folder/haproxy.cfg" <<CONF
global
  nbthread 1
  maxconn 12000
  no strict-limits
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  http-reuse always
frontend all
  bind $address:8101
  bind $address:8102 ssl crt $folder/both.pem alpn h2,http/1.1
  default_backend backend
backend backend
  server one $address:9000
CONF
LD_LIBRARY_PATH="$(echo "$cache"/haproxy/usr/lib/*-linux-gnu)" "${inside[@]}" taskset -c 1 "$cache/haproxy/usr/sbin/haproxy" -db -f "$folder/haproxy.cfg" >"$folder/haproxy.log" 2>&1 &
haproxy=$!; others="$others $haproxy"

for port in 8001 8101 8201; do up "http://$address:$port/"; up "https://$address:$((port + 1))/"; done
proxy=$(pgrep -P "$(cat "$folder/proxy.pid")")
declare -A pid=([ferry]=$gateway [nginx]=$proxy [haproxy]=$haproxy) port=([ferry]=8201 [nginx]=8001 [haproxy]=8101)
line "gateway with one route" $(memory $gateway)

# h2load of one kind: NAME MODE OPTION... ; what it says is in $folder/said.
load() {
  local name=$1 mode=$2 url="http://$address:${port[$1]}/" kind=(--h1); shift 2
  [ "$mode" = HTTP ] || url="https://$address:$((port[$name] + 1))/"
  [ "$mode" != HTTP/2 ] || kind=()
  "${inside[@]}" taskset -c 0 h2load "${kind[@]}" "$@" "$url" >"$folder/said" 2>&1
  grep -q '0 failed, 0 errored, 0 timeout' "$folder/said" && ! grep -q ' 0 2xx' "$folder/said" || { cat "$folder/said" >&2; fail "$name did not answer all requests of $mode"; }
}
for mode in HTTP TLS HTTP/2; do
  # As many requests under way in each: 64.
  many=(-c 64 -D 4); [ "$mode" != HTTP/2 ] || many=(-c 8 -m 8 -D 4)
  for round in 1 2 3; do
    for name in ferry nginx haproxy; do
      before=$(ticks "${pid[$name]}")
      load "$name" "$mode" "${many[@]}"
      used=$(($(ticks "${pid[$name]}") - before))
      done=$(sed -n 's/^requests: .* \([0-9]*\) succeeded.*/\1/p' "$folder/said")
      rate=$(sed -n 's/^finished in .*, \([0-9.]*\) req\/s.*/\1/p' "$folder/said")
      echo "$mode $name $(awk -v n="$done" -v t="$used" -v h="$(getconf CLK_TCK)" 'BEGIN {printf "%.0f", n / (t / h)}') $rate" >>"$folder/rates"
    done
  done
  # At a rate that none of them is busy with.
  for round in 1 2 3; do
    for name in ferry nginx haproxy; do
      rm -f "$folder/requests"
      load "$name" "$mode" -c 20 --rps 100 -D 4 --log-file="$folder/requests"
      echo "$mode $name $(sort -nk3 "$folder/requests" | awk '{all[NR] = $3} END {print all[int(NR * 0.5)], all[int(NR * 0.99)]}')" >>"$folder/times"
    done
  done
  for name in ferry nginx haproxy; do
    middle() { awk -v m="$mode" -v n="$name" -v f="$2" '$1 == m && $2 == n {print $f}' "$folder/$1" | sort -n | sed -n 2p; }
    line "gateway, $mode, $name" per_second_of_processor "$(middle rates 3)" per_second "$(middle rates 4)" \
      p50_us_at_2000 "$(middle times 3)" p99_us_at_2000 "$(middle times 4)"
  done
done

say "10,000 idle connections"
for name in ferry nginx haproxy; do
  "${inside[@]}" python3 -u "$top/hack/bench/idle.py" "$name" "${pid[$name]}" "$address" "${port[$name]}" | tee -a "$work/lines"
done
