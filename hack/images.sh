# Shared by what packs images: one is a folder with a config, uploaded to the registry at $url. Sourced after common.sh.

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
