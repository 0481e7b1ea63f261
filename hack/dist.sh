#!/usr/bin/env bash
# `make dist`: what is shipped, in dist/: the stripped binary, completions and man pages, a Debian package, an OCI image, a bill of
# materials, checksums. The tools (cargo-deb, cargo-cyclonedx, umoci, debootstrap) are installed where they are missing.
. "$(dirname "$0")/common.sh"
need_root
cd "$top"
dist="$top/dist"
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
export PATH="$PATH:$cache/tools/bin"
tool() { on_path "$1" >/dev/null || { say "installing $1 $2"; cargo install --quiet --locked --root "$cache/tools" "$1@$2"; }; }

install_packages debootstrap umoci
tool cargo-deb 3.8.0
tool cargo-cyclonedx 0.5.9
rm -rf "$dist"; mkdir -p "$dist/completions"

say "building ferry $version (profile dist: about fifteen minutes on two cores the first time)"
cargo build --profile dist -p ferry
! readelf -SW "$CARGO_TARGET_DIR/dist/ferry" | grep -q '\.symtab' || fail "the binary has its symbols still: see strip in Cargo.toml"
install -m 755 "$CARGO_TARGET_DIR/dist/ferry" "$dist/ferry"
"$dist/ferry" completion bash >"$dist/completions/ferry.bash"
"$dist/ferry" completion zsh >"$dist/completions/_ferry"
"$dist/ferry" completion fish >"$dist/completions/ferry.fish"
"$dist/ferry" man "$dist/man"

say "the Debian package"
cargo deb --no-build --no-strip -p ferry --output "$dist/ferry_${version}_$architecture.deb" >/dev/null

say "the bill of materials"
cargo cyclonedx --quiet --manifest-path crates/ferry/Cargo.toml --format json --override-filename ferry-bom
mv crates/ferry/ferry-bom.json "$dist/ferry_$version.cdx.json"; find crates xtask -name 'ferry-bom.json' -delete

# The image needs no container packages: pods run on the embedded runtime.
say "the OCI image"
root=$(mktemp -d "$cache/image-XXXXXX"); trap 'rm -rf --one-file-system "$root"' EXIT
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE)' | awk '$2 == "bookworm" {print $1; exit}')
debootstrap --variant=minbase --include=nftables,iproute2,ca-certificates bookworm "$root/root" "$mirror" >"$cache/debootstrap.log" 2>&1 \
  || fail "debootstrap failed; see $cache/debootstrap.log"
rm -rf "$root"/root/var/cache/apt/* "$root"/root/var/lib/apt/lists/* "$root"/root/usr/share/{doc,man,locale}/*
# The mirror of the machine that builds is nobody else's business.
: >"$root/root/etc/apt/sources.list"
install -m 755 "$dist/ferry" "$root/root/usr/bin/ferry"
umoci init --layout "$root/image" && umoci new --image "$root/image:$version"
umoci insert --image "$root/image:$version" "$root/root" /
umoci config --image "$root/image:$version" --config.entrypoint /usr/bin/ferry --config.cmd run \
  --config.volume /var/lib/ferry --config.env PATH=/usr/sbin:/usr/bin:/sbin:/bin --architecture "$architecture" --os linux
tar -C "$root/image" --sort=name --owner=0 --group=0 --numeric-owner -cf "$dist/ferry_${version}_$architecture.oci.tar" .

(cd "$dist" && find . -maxdepth 1 -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
(cd "$dist" && ls -l --block-size=K | awk 'NR > 1 {print $5, $9}' | column -t)
