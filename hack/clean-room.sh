#!/usr/bin/env bash
# `make clean-room`: the README's commands on a bare Debian 12, as a newcomer runs them.
#   hack/clean-room.sh            everything; a pass is noted in hack/clean-room.passed, the transcript in docs/getting-started.md
#   hack/clean-room.sh --up       the same without the tests
#   hack/clean-room.sh --build    set-up and build only
#   hack/clean-room.sh --if-changed   as --build, but only where what a build depends on differs from what the last pass had
#   hack/clean-room.sh --package  the Debian package that `make dist` left in dist/: installed, used, removed
#   hack/clean-room.sh --shell    a shell in the room
# The room is a minimal root made by debootstrap, with mount, process, network and host-name namespaces of its own, an empty home, an
# empty cargo cache, the Rust toolchain read-only at /opt/rust, and a clone of the last commit. WITHOUT="NAME…" removes packages first.
. "$(dirname "$0")/common.sh"
mode=${1:-}
passed="$top/hack/clean-room.passed"

# The block of the README that says how to start, without comments: one command a line.
readme_commands() { awk '/<!-- clean-room -->/ {seen=1} /^```/ {if (seen) {fence++; next}} fence == 1 {sub(/ *#.*/, ""); if ($0 != "") print}' "$top/README.md"; }
# What decides whether a fresh machine can build: a name and a hash for all of it. A tag would not travel with a clone of a branch.
inputs() {
  { (cd "$top" && git ls-files -s Cargo.lock '*Cargo.toml' '*build.rs' '*.proto' .cargo Makefile hack ':!hack/clean-room.passed'); readme_commands; } | sha256sum | cut -d' ' -f1
}
# Taken before the clone: what is committed meanwhile was not in the room.
inputs=$(inputs) commit=$(cd "$top" && git rev-parse --short HEAD)
if [ "$mode" = --if-changed ]; then
  if [ "$(cut -d' ' -f1 "$passed" 2>/dev/null)" = "$inputs" ]; then say "clean room: nothing that a build depends on changed since it passed ($(cut -d' ' -f2- "$passed"))"; exit 0; fi
  mode=--build
fi
need_root
[ -z "$(cd "$top" && git status --porcelain)" ] || say "note: the room gets the last commit; what is not committed stays outside"
install_packages debootstrap nftables iproute2
toolchain=$(cd "$top" && rustc --print sysroot)
name=fr$$
room=$(mktemp -d "${CLEAN_ROOM_DIR:-$cache}/room-XXXXXX")
root="$room/root"
times="$room/times"; : >"$times"
forwarding=$(cat /proc/sys/net/ipv4/ip_forward)

clean() {
  set +e
  # Ends everything in the room: its process namespace goes with the process that made it.
  [ -n "${outer:-}" ] && kill -9 "$outer" 2>/dev/null
  wait 2>/dev/null
  ip netns del "$name" 2>/dev/null; ip link del "$name" 2>/dev/null; nft delete table ip "$name" 2>/dev/null
  # A node that was started beside the room needs it from now on.
  nft list tables 2>/dev/null | grep -q ferry || echo "$forwarding" >/proc/sys/net/ipv4/ip_forward
  # Control groups are the one thing that the room shares with this machine.
  for _ in 1 2 3; do find /sys/fs/cgroup -depth -type d \( -path '*/ferry' -o -path '*/ferry/*' -o -path '*/ferrytest*' \) -exec rmdir {} + 2>/dev/null; done
  if [ -n "${KEEP:-}" ]; then say "kept: $room"; else rm -rf --one-file-system "$room"; fi
}
trap clean EXIT
trap 'exit 130' INT TERM

# stage NAME COMMAND... : runs it and notes its time.
stage() {
  local label=$1 begin seconds; shift; begin=$(date +%s)
  say "clean room: $label"
  "$@" || fail "clean room: '$label' failed after $(($(date +%s) - begin)) s"
  seconds=$(($(date +%s) - begin))
  printf '%s\t%s\n' "$label" "$seconds" >>"$times"
  say "clean room: $label took $seconds s"
}

# The machine's own mirror of Debian, whichever that is.
mirror() { apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$2 == "bookworm" {print $1; exit}'; }
make_root() {
  debootstrap --variant=minbase --include=git,make,curl,ca-certificates bookworm "$root" "$(mirror)" >"$room/debootstrap.log" 2>&1 || { tail -n 5 "$room/debootstrap.log"; return 1; }
  # Updates as on this machine; certificates that this machine trusts beside Debian's own.
  cp -a /etc/apt/sources.list.d/debian.sources "$root/etc/apt/sources.list.d/" 2>/dev/null && : >"$root/etc/apt/sources.list"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  echo clean-room >"$root/etc/hostname"; printf '127.0.0.1 localhost clean-room\n' >"$root/etc/hosts"
  mkdir -p "$root/opt/rust" "$root/old"
  git clone -q "$top" "$root/root/ferry"
}
wire() {
  ip netns add "$name" && ip link add "$name" type veth peer name eth0 netns "$name" || return 1
  ip addr add 198.18.77.1/30 dev "$name"; ip link set "$name" up
  ip -n "$name" addr add 198.18.77.2/30 dev eth0; ip -n "$name" link set eth0 up; ip -n "$name" link set lo up
  ip -n "$name" route add default via 198.18.77.1
  echo 1 >/proc/sys/net/ipv4/ip_forward
  nft -f - <<NFT
table ip $name {
  chain out { type nat hook postrouting priority srcnat; ip saddr 198.18.77.0/30 masquerade; }
}
NFT
}
# The room's first process; it stays until the end, so that what one command starts the next one finds.
open_room() {
  env -i ROOM_ROOT="$root" ROOM_TOOLCHAIN="$toolchain" PATH="$PATH" nsenter --net="/run/netns/$name" unshare --mount --pid --fork --uts --kill-child bash -c '
      set -e
      mount --make-rprivate /
      mount --bind "$ROOM_ROOT" "$ROOM_ROOT"; cd "$ROOM_ROOT"
      mount -t proc proc proc; mount -t sysfs sysfs sys; mount --rbind /sys/fs/cgroup sys/fs/cgroup
      mount --rbind /dev dev; mount -t tmpfs -o mode=755 tmpfs run
      mount --bind "$ROOM_TOOLCHAIN" opt/rust; mount -o remount,bind,ro opt/rust
      hostname clean-room
      pivot_root . old; umount -l /old; mount --make-rshared /
      touch /run/open; sleep infinity & wait' &
  outer=$!
  for _ in $(seq 100); do
    first=$(cut -d' ' -f1 "/proc/$outer/task/$outer/children" 2>/dev/null) || return 1
    [ -n "$first" ] && [ -e "/proc/$first/root/run/open" ] && return
    sleep 0.1
  done
  return 1
}
# enter COMMAND : a shell command in the room, in the clone.
enter() {
  env -i TERM="${TERM:-dumb}" HOME=/root USER=root LANG=C.UTF-8 PATH=/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    nsenter --target "$first" --mount --pid --uts --net --root --wd="/proc/$first/root/root/ferry" bash -c "$1"
}
# One command of the README, what it prints kept.
command_of_readme() { enter "$1" 2>&1 | tee "$room/$(echo "$1" | tr ' ' -).txt"; return "${PIPESTATUS[0]}"; }

# The room's clone is of no use to somebody who installs a package.
install_package() {
  cp "$top"/dist/ferry_*.deb "$root/root/" 2>/dev/null || fail "no package in dist/: run make dist first"
  enter 'rm -rf /root/ferry/* && apt-get update -qq && apt-get install -y --no-install-recommends /root/ferry_*.deb >/root/apt.log 2>&1 || { tail -n 5 /root/apt.log; exit 1; }'
}
# What a user of a machine without systemd does: the service's own command, until the node is ready, a second start on the same data, the end.
use_package='set -e
  ferry --version; [ -s /usr/lib/systemd/system/ferry.service ] && [ -s /usr/share/bash-completion/completions/ferry ] && ls /usr/share/man/man1/ferry.1* >/dev/null
  for try in first second; do
    ferry run --container-runtime-endpoint embedded >"/root/$try.log" 2>&1 & ferry=$!
    for wait in $(seq 300); do ready=$(curl -ks https://127.0.0.1:6443/readyz || true); [ "$ready" = ok ] && break; kill -0 $ferry || { tail "/root/$try.log"; exit 1; }; sleep 0.1; done
    [ "$ready" = ok ] || { tail "/root/$try.log"; exit 1; }
    echo "$try start: /readyz answers ok after about $wait tenths of a second"
    for part in certificate-authority-data client-certificate-data client-key-data; do sed -n "s|.*[\" ]$part\"*: *\"*\([A-Za-z0-9+/=]*\).*|\1|p" /var/lib/ferry/kubeconfig | base64 -d >"/root/$part"; done
    for wait in $(seq 600); do
      node=$(curl -s --cacert /root/certificate-authority-data --cert /root/client-certificate-data --key /root/client-key-data https://127.0.0.1:6443/api/v1/nodes/clean-room || true)
      case $node in *KubeletReady*) break ;; esac; sleep 0.1
    done
    case $node in *KubeletReady*) echo "$try start: the node is ready" ;; *) tail "/root/$try.log"; echo "$node" | tail -n 40; exit 1 ;; esac
    kill $ferry; wait $ferry || { tail "/root/$try.log"; exit 1; }
  done
  ferry down --purge'

stage "a bare Debian 12 (debootstrap)" make_root
stage "its namespaces and network" eval 'wire && open_room'
[ -z "${WITHOUT:-}" ] || enter "dpkg --force-depends --purge $WITHOUT" >/dev/null
case $mode in
  --shell) enter bash; exit ;;
  --build)
    stage "hack/setup.sh --test" enter 'hack/setup.sh --test'
    stage "make build" enter 'make build'
    say "clean room: a bare machine can build Ferry"; exit ;;
  --package)
    stage "install the package" install_package
    stage "use it" enter "$use_package"
    stage "remove it" enter 'apt-get purge -y ferry >/dev/null && ! command -v ferry && [ ! -e /usr/lib/systemd/system/ferry.service ]'
    say "clean room: the package works on a bare machine"; exit ;;
  '' | --up) ;;
  *) fail "usage: hack/clean-room.sh [--up|--build|--if-changed|--package|--shell]" ;;
esac
mapfile -t commands < <(readme_commands)
[ ${#commands[@]} -ge 2 ] || fail "README.md has no commands behind <!-- clean-room -->"
for command in "${commands[@]}"; do
  if [ "$mode" = --up ] && [ "$command" = "make test" ]; then continue; fi
  stage "$command" command_of_readme "$command"
done

printf '%s %s\n' "$inputs" "$(date -u +%F) $commit" >"$passed"
"$top/hack/transcript.sh" "$room" "$times" "$commit"
say "clean room: passed"; column -t -s $'\t' "$times" 2>/dev/null || cat "$times"
