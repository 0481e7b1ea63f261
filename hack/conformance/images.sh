# Packs the suite's images and tells the suite where they are. Sourced by conformance.sh after suite.sh and images.sh of hack.

# What upstream's images have from Alpine or Debian: here Debian's, with everything they depend on.
image_packages=(curl wget netcat-openbsd bind9-dnsutils iproute2 libc-bin)
search_path='"Env":["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]'

with_dependencies() { # PACKAGE... : they and all they need, as on a machine that has nothing
  apt-get install -s --no-install-recommends -o Dir::State::status=/dev/null "$@" | awk '/^Inst/ {print $2}'
}

# tools FOLDER : a file system with a shell, dig, curl, nc, getent.
tools() {
  local root=$1 part
  base "$root"
  # Removed first: written through a link, the first of them would be busybox.
  for part in bin sbin lib lib64 usr; do [ ! -d "$cache/conformance/tools/$part" ] || cp -a --remove-destination "$cache/conformance/tools/$part" "$root/"; done
  rm -rf "$root"/usr/share/{doc,man,locale,info,lintian,bash-completion,perl5,debconf} "$root"/usr/lib/*/gconv
  ln -sfn nc.openbsd "$root/bin/nc"
  cp "$cache/conformance/shell/bin/bash-static" "$root/bin/bash"
  printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
  # A test looks for upstream's base image by its name.
  echo 'PRETTY_NAME="stand-in for Alpine Linux, with files of Debian"' >"$root/etc/os-release"
}

# push_image ID FOLDER CONFIG : under the name and tag that the suite asks for.
push_image() {
  local name; name=$(awk -F '\t' -v id="$1" '$1 == id {print $2}' "$suite/images.tsv")
  case $1 in Pause | Etcd) ;; *) name="e2e-test-images/$name" ;; esac
  push "$name" "$(image_tag "$1")" "$2" "$3"
}

pack_images() {
  local stamp="$cache/registry-$port/conformance" version work name kubernetes="$suite/kubernetes" path="$search_path"
  version=$(cat "$top/hack/images.sh" "$top"/hack/conformance/{images.sh,sh.c} "$suite/recipe" "$cache/nginx/.unpacked" "$cache/base/.unpacked" | sha256sum)
  [ "$(cat "$stamp" 2>/dev/null)" = "$version" ] && return
  apt-cache show "${image_packages[@]}" >/dev/null 2>&1 || apt_update
  unpack_packages "$cache/conformance/tools" $(with_dependencies "${image_packages[@]}")
  unpack_packages "$cache/conformance/shell" bash-static
  say "packing the suite's images"
  work=$(mktemp -d)

  mkdir -p "$work/pause"; cp "$suite/bin/pause" "$work/pause/"
  push_image Pause "$work/pause" '{"Entrypoint":["/pause"],"User":"65535:65535"}'

  base "$work/busybox"
  cp "$cache/conformance/shell/bin/bash-static" "$work/busybox/bin/"; rm "$work/busybox/bin/sh"
  gcc -Os -static -o "$work/busybox/bin/sh" "$top/hack/conformance/sh.c" || fail "could not build the shell of the busybox image"
  push_image BusyBox "$work/busybox" "{\"Cmd\":[\"sh\"],$path}"
  push_image NonRoot "$work/busybox" "{\"User\":\"1234\",\"Cmd\":[\"sh\"],$path}"
  mkdir -p "$work/busybox/usr/local/bin"; cp "$suite/bin/nnp" "$work/busybox/usr/local/bin/"; chmod u+s,g+s "$work/busybox/usr/local/bin/nnp"
  push_image Nonewprivs "$work/busybox" "{\"Cmd\":[\"nnp\"],$path}"

  mkdir -p "$work/sample-apiserver" "$work/etcd/usr/local/bin" "$work"/{etcd,sample-apiserver}/tmp
  cp "$suite/bin/sample-apiserver" "$work/sample-apiserver/"
  push_image APIServer "$work/sample-apiserver" "{\"Entrypoint\":[\"/sample-apiserver\"],$path}"
  cp "$suite/bin/etcd" "$work/etcd/usr/local/bin/"
  push_image Etcd "$work/etcd" "{\"Cmd\":[\"etcd\"],$path}"

  mkdir -p "$work/regression"; cp "$suite/bin/regression-issue-74839" "$work/regression/"
  push_image RegressionIssue74839 "$work/regression" '{"Entrypoint":["/regression-issue-74839"]}'

  tools "$work/tools"
  push_image GlibcDnsTesting "$work/tools" "{\"Cmd\":[\"sh\"],$path}"

  cp -r "$kubernetes"/test/images/agnhost/porter/localhost.* "$work/tools/"; chmod u+w "$work/tools"/localhost.*
  cp "$suite/bin/agnhost" "$work/tools/"; ln -s agnhost "$work/tools/agnhost-2"; mkdir "$work/tools/uploads"
  echo 'user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh' >>"$work/tools/etc/passwd"
  printf 'user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n' >>"$work/tools/etc/group"
  for name in Agnhost AgnhostPrev; do
    push_image "$name" "$work/tools" "{\"Entrypoint\":[\"/agnhost\"],\"Cmd\":[\"pause\"],$path,\"ExposedPorts\":{\"80/tcp\":{},\"8080/tcp\":{},\"8081/tcp\":{},\"9376/tcp\":{},\"5000/tcp\":{}}}"
  done
  for name in Kitten Nautilus; do
    cp --no-preserve=mode "$kubernetes/test/images/${name,}/html/"* "$work/tools/"
    push_image "$name" "$work/tools" "{\"Entrypoint\":[\"/agnhost\"],\"Cmd\":[\"test-webserver\"],$path}"
    rm "$work/tools/data.json" "$work/tools/${name,}.jpg"
  done
  rm -rf "$work"
  # Debian's, which hack/registry.sh packed, under the suite's names.
  retag library/nginx 1.27 e2e-test-images/nginx "$(image_tag Nginx)" "$(image_tag NginxNew)"
  printf '%s' "$version" >"$stamp"
}

# retag REPOSITORY TAG OTHER TAG... : the same image under another name.
retag() {
  local from=$1 tag=$2 to=$3 digest manifest; shift 3
  manifest=$(mktemp)
  curl -sf -H 'Accept: application/vnd.oci.image.manifest.v1+json' "$url/v2/$from/manifests/$tag" >"$manifest" || fail "there is no $from:$tag in the registry"
  for digest in $(grep -o 'sha256:[0-9a-f]*' "$manifest"); do
    curl -sf -o /dev/null -X POST "$url/v2/$to/blobs/uploads/?mount=$digest&from=$from" || fail "could not mount $digest of $from in $to"
  done
  for tag in "$@"; do
    curl -sf -o /dev/null -X PUT -H 'Content-Type: application/vnd.oci.image.manifest.v1+json' --data-binary @"$manifest" "$url/v2/$to/manifests/$tag" || fail "could not push $to:$tag"
  done
  rm "$manifest"
}

# repo_list FILE : where the suite finds its images.
repo_list() {
  local host="127.0.0.1:$port"
  printf '%s: %s\n' promoterE2eRegistry "$host/e2e-test-images" gcRegistry "$host" gcEtcdRegistry "$host" buildImageRegistry "$host/build-image" \
    sigStorageRegistry "$host/sig-storage" dockerLibraryRegistry "$host/library" cloudProviderGcpRegistry "$host/cloud-provider-gcp" >"$1"
}
