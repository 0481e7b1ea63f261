#!/usr/bin/env bash
# `make vm-test`: Ferry on virtual machines with stock Debian 12 under software emulation, for what containers and namespaces do not have:
# a kernel of its own, systemd, control groups v2 alone, AppArmor, systemd-resolved, WireGuard in the kernel, reboot and power cut.
#   MACHINES=3    so many machines; the first is the server (1 leaves out what needs nodes)
#   CHECK=regex   only checks whose name matches; those that prepare others always run
#   FERRY=path    this program instead of a release build of the clone
#   KEEP=1        leaves the machines running and says how to get into them
# Not part of `make test`: on two cores it takes about half an hour. See docs/nodes.md.
. "$(dirname "$0")/common.sh"
for part in machine checks; do . "$top/hack/vm/$part.sh"; done

machines=${MACHINES:-3}
[[ $machines =~ ^[1-9]$ ]] || fail "MACHINES is a number from 1 to 9"
need_root
cd "$top"
install_packages qemu-system-x86 qemu-utils debootstrap openssh-client e2fsprogs
"$top/hack/setup.sh"
if [ -n "${FERRY:-}" ]; then ferry=$(realpath "$FERRY"); [ -x "$ferry" ] || fail "FERRY=$FERRY is no program"
else say "building Ferry"; cargo build --release -p ferry; ferry="$CARGO_TARGET_DIR/release/ferry"; fi

port=${FERRY_VM_REGISTRY_PORT:-5061}
home="$cache/vm"
work=$(mktemp -d /tmp/ferryvm-XXXX)
results="$work/results"; : >"$results"
ended() {
  set +e; trap - EXIT INT TERM
  if [ -n "${KEEP:-}" ]; then say "kept: ssh -i $work/key -p $(ssh_port 1) root@127.0.0.1; the machines' processes are in $work/*.pid"; return; fi
  local number; for number in $(seq "$machines"); do power_off "$number"; done
  "$top/hack/registry.sh" stop "$port"; rm -rf "$work"
}
trap ended EXIT
trap 'exit 130' INT TERM
"$top/hack/registry.sh" start "$port"
make_root
make_disk
for number in $(seq "$machines"); do boot "$number"; done
for number in $(seq "$machines"); do reachable "$number"; done
run_checks

say "summary: Debian $(inside 1 cat /etc/debian_version), Linux $(inside 1 uname -r), $machines machines"
awk -F '\t' '{printf "%-8s %6.1f s  %s\n", $1, $2, $3; count[$1]++} END {printf "%d passed, %d failed\n", count["passed"], count["failed"]}' "$results"
[ ! -f "$work/notes" ] || cat "$work/notes"
! grep -q '^failed' "$results"
