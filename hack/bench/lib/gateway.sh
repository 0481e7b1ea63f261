# A gateway with one route to a backend, in a network namespace of its own. Sourced by gate.sh and routes.sh; set `gateway_core` before.
net=ferry-bench-gate address=10.231.0.1 folder="$work/gate"
inside=(ip netns exec "$net")
trap 'end ${server:-} ${gateway:-} ${others:-}; ip netns delete "$net"' EXIT
ip netns add "$net"
ip -n "$net" link set lo up
ip -n "$net" link add out type veth peer name back; ip -n "$net" addr add "$address/24" dev out
ip -n "$net" link set back up; ip -n "$net" link set out up; ip -n "$net" route add default dev out
mkdir -p "$folder"; ulimit -n "$(ulimit -H -n)"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=bench -keyout "$folder/key.pem" -out "$folder/cert.pem" 2>/dev/null
cat "$folder/cert.pem" "$folder/key.pem" >"$folder/both.pem"

nginx() { # NAME CORE SERVERS : one worker; what is in front of it keeps its connections
  cat >"$folder/$1.conf" <<CONF
worker_processes 1; daemon off; error_log stderr; pid $folder/$1.pid; 
events { worker_connections 15000; }
http {
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600s;
  client_body_temp_path $folder/$1-body; proxy_temp_path $folder/$1-proxy; fastcgi_temp_path $folder/$1-f; uwsgi_temp_path $folder/$1-u; scgi_temp_path $folder/$1-s;
  $3
}
CONF
  LD_LIBRARY_PATH="$(echo "$cache"/nginx/usr/lib/*-linux-gnu)" "${inside[@]}" taskset -c "$2" "$cache/nginx/usr/sbin/nginx" -p "$folder" -c "$folder/$1.conf" 2>"$folder/$1.log" &
  others="${others:-} $!"
}
up() { until "${inside[@]}" curl -skf -o /dev/null "$1"; do sleep 0.02; done; }
nginx backend 0 "server { listen $address:9000 reuseport; location / { default_type text/plain; return 200 'hello from the backend'; } }"
alone "${inside[@]}"
gateway() { # in $gateway
  "${inside[@]}" taskset -c "$gateway_core" "$ferry" gateway --kubeconfig "$alone" --gateway-address "$address" >"$folder/gateway.log" 2>&1 &
  gateway=$!
}
gateway
"${inside[@]}" python3 -u "$top/hack/bench/routes.py" begin "$alone" "$address" "$folder"
