#!/usr/bin/env bash
# A registry on loopback with the images of the examples and tests, packed from Debian's packages.
#   hack/registry.sh start [PORT]   starts it (default 5055) and fills it; prints nothing when all is there
#   hack/registry.sh stop [PORT]
. "$(dirname "$0")/common.sh"
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
  setsid "$cache/registry/usr/bin/docker-registry" serve "$home/config.yml" >"$home/log" 2>&1 </dev/null &
  echo $! >"$home/pid"
  local try
  for try in $(seq 100); do
    curl -sf -o /dev/null "$url/v2/" && return
    running || fail "the registry ended; see $home/log"
    sleep 0.05
  done
  fail "the registry does not answer on port $port; see $home/log"
}

blob() { # FILE REPOSITORY: uploads, prints the digest
  local digest="sha256:$(sha256sum "$1" | cut -d' ' -f1)" place
  if ! curl -sf -o /dev/null -I "$url/v2/$2/blobs/$digest"; then
    place=$(curl -sf -D - -o /dev/null -X POST "$url/v2/$2/blobs/uploads/" | tr -d '\r' | sed -n 's/^[Ll]ocation: //p')
    case $place in *\?*) place="$place&digest=$digest" ;; *) place="$place?digest=$digest" ;; esac
    curl -sf -o /dev/null -X PUT -H 'Content-Type: application/octet-stream' --data-binary @"$1" "$place" || return 1
  fi
  printf '%s' "$digest"
}

# push REPOSITORY TAG FOLDER CONFIG: one image whose only layer is the folder; CONFIG is the config's JSON (Cmd, Env, …).
push() {
  local repository=$1 tag=$2 folder=$3 config=$4 work layer id
  work=$(mktemp -d)
  tar -C "$folder" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf "$work/layer.tar" .
  id="sha256:$(sha256sum "$work/layer.tar" | cut -d' ' -f1)"
  gzip -n "$work/layer.tar"
  printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["%s"]}}' \
    "$(dpkg --print-architecture)" "$config" "$id" >"$work/config.json"
  layer=$(blob "$work/layer.tar.gz" "$repository") && config=$(blob "$work/config.json" "$repository") || fail "could not upload $repository:$tag"
  printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"%s","size":%s},"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar+gzip","digest":"%s","size":%s}]}' \
    "$config" "$(stat -c %s "$work/config.json")" "$layer" "$(stat -c %s "$work/layer.tar.gz")" >"$work/manifest.json"
  curl -sf -o /dev/null -X PUT -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' --data-binary @"$work/manifest.json" \
    "$url/v2/$repository/manifests/$tag" || fail "could not push $repository:$tag"
  rm -rf "$work"
}

# base FOLDER: a file system with busybox as every common command.
base() {
  local root=$1 name
  mkdir -p "$root"/{bin,dev,etc,proc,root,run,sys,tmp,usr/share,var/lib,var/log}; chmod 1777 "$root/tmp"
  # Linked dynamically: the static one cannot resolve names without the C library it was built with.
  cp "$cache/base/bin/busybox" "$root/bin/busybox"
  cp -a "$cache/base/lib" "$cache/base/lib64" "$root/"; rm -rf "$root/lib/systemd"
  for name in $("$cache/busybox/bin/busybox" --list); do [ "$name" = busybox ] || ln -sfn busybox "$root/bin/$name"; done
  printf 'root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/false\nnobody:x:65534:65534::/:/bin/false\n' >"$root/etc/passwd"
  printf 'root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n' >"$root/etc/group"
}

fill() {
  local stamp="$home/filled" version work
  version=$(cat "$0" "$cache/nginx/.unpacked" "$cache/base/.unpacked" | sha256sum)
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
