# Virtual machines: a root by debootstrap, one disk for all, an overlay for each, and ssh into them. Sourced by vm-test.sh.

vm_packages=systemd,systemd-sysv,udev,dbus,kmod,linux-image-amd64,nftables,iproute2,iptables,openssh-server,ca-certificates,curl,procps,apparmor,systemd-resolved,conntrack,runc,util-linux,iputils-ping

ssh_port() { echo $((${FERRY_VM_SSH_PORT:-2200} + $1)); }
# The address of a machine among the others. The other card leads to the host: 10.0.2.2 is its loopback.
address() { echo "10.199.0.$1"; }

# make_root : what all machines have, once.
make_root() {
  local root="$home/root"
  [ "$(cat "$home/packages" 2>/dev/null)" = "$vm_packages" ] && return
  say "a Debian 12 by debootstrap"
  rm -rf "$root"; mkdir -p "$home"
  debootstrap --variant=minbase --include="$vm_packages" bookworm "$root" >"$home/debootstrap.log" 2>&1 || fail "debootstrap failed; see $home/debootstrap.log"
  rm -f "$root"/var/cache/apt/archives/*.deb
  printf '%s' "$vm_packages" >"$home/packages"
}

# make_disk : the root with this run's key and this program on one disk. Made without a loop device.
make_disk() {
  local root="$home/root" name
  say "a disk with $("$ferry" --version)"
  [ -f "$work/key" ] || ssh-keygen -q -t ed25519 -N '' -f "$work/key"
  mkdir -p "$root/root/.ssh"; cp "$work/key.pub" "$root/root/.ssh/authorized_keys"; chmod 700 "$root/root/.ssh"
  echo '/dev/vda / ext4 errors=remount-ro 0 1' >"$root/etc/fstab"
  # One card leads out; the other, known by its hardware address, gets its own from the machine's number on the kernel's command line.
  printf '[Match]\nName=en*\n\n[Network]\nDHCP=ipv4\n' >"$root/etc/systemd/network/20-out.network"
  cat >"$root/usr/local/sbin/machine-number" <<'SCRIPT'
#!/bin/sh
number=$(sed -n 's/.*machine=\([0-9]*\).*/\1/p' /proc/cmdline)
hostnamectl set-hostname "m$number" || hostname "m$number"
for card in /sys/class/net/*; do
  case $(cat "$card/address") in 52:54:00:c7:*) name=${card##*/} ;; esac
done
mkdir -p /run/systemd/network
printf '[Match]\nName=%s\n\n[Network]\nAddress=10.199.0.%s/24\n\n[Link]\nRequiredForOnline=no\n' "$name" "$number" >/run/systemd/network/10-between.network
SCRIPT
  chmod 755 "$root/usr/local/sbin/machine-number"
  cat >"$root/etc/systemd/system/machine-number.service" <<'UNIT'
[Unit]
Description=The name and the address of this machine
DefaultDependencies=no
After=systemd-udevd.service systemd-udev-settle.service dbus.socket local-fs.target
Wants=systemd-udev-settle.service
Before=systemd-networkd.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/machine-number

[Install]
WantedBy=multi-user.target
UNIT
  chroot "$root" systemctl -q enable systemd-networkd systemd-resolved ssh machine-number
  chroot "$root" systemctl -q mask apt-daily.timer apt-daily-upgrade.timer
  ln -sfn /run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
  install -m 755 "$ferry" "$root/usr/bin/ferry"
  for name in ferry ferry-node; do install -m 644 "$top/packaging/$name.service" "$root/lib/systemd/system/"; done
  install -m 644 "$top/packaging/default" "$root/etc/default/ferry"
  rm -f "$work/disk.raw"; truncate -s 8G "$work/disk.raw"
  mkfs.ext4 -q -F -d "$root" "$work/disk.raw" || fail "could not make the disk"
  cp "$root"/boot/vmlinuz-* "$work/vmlinuz"; cp "$root"/boot/initrd.img-* "$work/initrd"
}

# boot NUMBER : starts a machine, with the disk it had.
boot() {
  local number=$1
  [ -f "$work/$number.qcow2" ] || qemu-img create -q -f qcow2 -b "$work/disk.raw" -F raw "$work/$number.qcow2"
  qemu-system-x86_64 -M q35 -accel tcg,thread=multi,tb-size=512 -cpu max -smp 2 -m "${FERRY_VM_MEMORY:-2048}" -nographic -no-reboot \
    -kernel "$work/vmlinuz" -initrd "$work/initrd" -append "root=/dev/vda rw console=ttyS0 quiet machine=$number" \
    -drive "file=$work/$number.qcow2,if=virtio" -device virtio-rng-pci \
    -nic "user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:$(ssh_port "$number")-:22" \
    -nic "socket,model=virtio-net-pci,mac=52:54:00:c7:00:0$number,mcast=230.199.0.1:${FERRY_VM_MULTICAST_PORT:-10199},localaddr=127.0.0.1" \
    >>"$work/$number.console" 2>&1 </dev/null &
  echo $! >"$work/$number.pid"
}

# inside NUMBER COMMAND... : runs it in a machine.
inside() {
  local number=$1; shift
  ssh -q -i "$work/key" -p "$(ssh_port "$number")" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10 -o ServerAliveInterval=15 \
    root@127.0.0.1 "$*"
}

# reachable NUMBER : waits until a machine has started.
reachable() {
  local number=$1 begin=$SECONDS
  until inside "$number" true 2>/dev/null; do
    kill -0 "$(cat "$work/$number.pid")" 2>/dev/null || { tail -n 20 "$work/$number.console" >&2; fail "machine $number ended"; }
    [ $((SECONDS - begin)) -lt 900 ] || { tail -n 20 "$work/$number.console" >&2; fail "machine $number does not answer"; }
    sleep 2
  done
}

# power_off NUMBER : as a cut of the power does.
power_off() {
  local pid; pid=$(cat "$work/$1.pid" 2>/dev/null) || return 0
  kill -9 "$pid" 2>/dev/null; wait "$pid" 2>/dev/null || true
}

# reboot NUMBER : in good order; qemu ends, and is started again.
reboot() {
  local number=$1 pid; pid=$(cat "$work/$number.pid")
  inside "$number" systemctl reboot || true
  timeout 300 tail -f --pid="$pid" /dev/null || { power_off "$number"; return 1; }
  boot "$number"; reachable "$number"
}
