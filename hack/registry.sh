#!/usr/bin/env bash
# A registry on loopback with the images of the examples and tests, packed from Debian's packages.
#   hack/registry.sh start [PORT]   starts it (default 5055) and fills it; prints nothing when all is there
#   hack/registry.sh stop [PORT]
. "$(dirname "$0")/common.sh"
. "$top/hack/images.sh"
port=${2:-5055}
home="$cache/registry-$port"
url="http://127.0.0.1:$port"
mkdir -p "$home"

running() { # is the number in the pid file still that registry?
  local pid; pid=$(cat "$home/pid" 2>/dev/null) || return 1
  tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -qxF "$home/config.yml"
}

start() {
  running && return
  cat >"$home/config.yml" <<YAML
version: 0.1
log: {level: warn, accesslog: {disabled: true}}
storage: {filesystem: {rootdirectory: $home/data}, delete: {enabled: false}}
http: {addr: 127.0.0.1:$port}
YAML
  ( # Whoever starts it may hold locks, which it would keep for as long as it runs.
    for fd in /proc/self/fd/*; do fd=${fd##*/}; [ "$fd" -le 2 ] || eval "exec $fd>&-"; done
    exec setsid "$cache/registry/usr/bin/docker-registry" serve "$home/config.yml" >"$home/log" 2>&1 </dev/null ) &
  echo $! >"$home/pid"
  local try
  for try in $(seq 100); do
    curl -sf -o /dev/null "$url/v2/" && return
    running || fail "the registry ended; see $home/log"
    sleep 0.05
  done
  fail "the registry does not answer on port $port; see $home/log"
}

fill() {
  local stamp="$home/filled" version work
  version=$(cat "$0" "$top/hack/images.sh" "$cache/nginx/.unpacked" "$cache/base/.unpacked" | sha256sum)
  [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] && return
  say "packing images"
  work=$(mktemp -d)

  mkdir -p "$work/pause/bin"; cp "$cache/busybox/bin/busybox" "$work/pause/bin/"
  push pause 3.10 "$work/pause" '{"Entrypoint":["/bin/busybox","sleep","2147483647"]}'

  base "$work/busybox"
  push library/busybox 1.36 "$work/busybox" '{"Cmd":["sh"],"Env":["PATH=/bin"]}'

  base "$work/nginx"
  cp -a "$cache/nginx/lib" "$work/nginx/"; rm -rf "$work/nginx/lib/systemd"
  mkdir -p "$work/nginx/usr/sbin" "$work/nginx/usr/lib" "$work/nginx/var/lib/nginx" "$work/nginx/var/log/nginx" "$work/nginx/etc/nginx"
  cp -a "$cache/nginx/usr/sbin/nginx" "$work/nginx/usr/sbin/"
  cp -a "$cache/nginx"/usr/lib/*-linux-gnu "$work/nginx/usr/lib/"; rm -rf "$work/nginx"/usr/lib/*/gconv
  cat >"$work/nginx/etc/nginx/nginx.conf" <<'CONF'
worker_processes 1;
error_log stderr;
events { worker_connections 256; }
http {
  access_log /dev/stdout;
  server {
    listen 80;
    # The name of the pod that answers, so that the spread over several is seen.
    location / { default_type text/plain; return 200 "$hostname\n"; }
  }
}
CONF
  local tag
  for tag in 1.25 1.27; do
    push library/nginx "$tag" "$work/nginx" '{"Cmd":["/usr/sbin/nginx","-g","daemon off;"],"Env":["PATH=/bin:/usr/sbin"],"ExposedPorts":{"80/tcp":{}},"StopSignal":"SIGQUIT"}'
  done
  rm -rf "$work"
  printf '%s' "$version" >"$stamp"
}

case ${1:-} in
  start) start; fill ;;
  stop) if running; then kill "$(cat "$home/pid")"; fi; rm -f "$home/pid" ;;
  *) fail "usage: hack/registry.sh start|stop [PORT]" ;;
esac
