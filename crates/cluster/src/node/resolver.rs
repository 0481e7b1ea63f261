//! Which file names the resolvers of this machine, as seen from somewhere else than its own loopback.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

const USUAL: &str = "/etc/resolv.conf";
/// Where systemd-resolved writes the servers behind its stub on 127.0.0.53; kubeadm gives it to kubelets, too.
const BEHIND_THE_STUB: &str = "/run/systemd/resolve/resolv.conf";

pub fn file() -> PathBuf {
    choose(Path::new(USUAL), Path::new(BEHIND_THE_STUB)).to_owned()
}

fn choose<'a>(usual: &'a Path, behind: &'a Path) -> &'a Path {
    let only_loopback = servers(usual).iter().all(IpAddr::is_loopback);
    let useful = servers(behind).iter().any(|server| !server.is_loopback());
    if only_loopback && useful { behind } else { usual }
}

fn servers(path: &Path) -> Vec<IpAddr> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    lines.filter_map(|rest| rest.split_whitespace().next()?.split('%').next()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_behind_a_stub_are_taken() {
        let folder = tempfile::tempdir().unwrap();
        let (usual, behind) = (folder.path().join("usual"), folder.path().join("behind"));
        let check = |of_usual: &str, of_behind: Option<&str>, want: &Path| {
            fs::write(&usual, of_usual).unwrap();
            let _ = fs::remove_file(&behind);
            if let Some(text) = of_behind {
                fs::write(&behind, text).unwrap();
            }
            assert_eq!(choose(&usual, &behind), want, "{of_usual} {of_behind:?}");
        };
        let stub = "nameserver 127.0.0.53\noptions edns0 trust-ad\nsearch .\n";
        check(stub, Some("nameserver 192.0.2.53\nsearch .\n"), &behind);
        check(stub, Some("# No DNS servers known.\nsearch .\n"), &usual);
        check(stub, None, &usual);
        check("nameserver 192.0.2.1\n", Some("nameserver 192.0.2.53\n"), &usual);
        check("", Some("nameserver fe80::1%eth0\n"), &behind);
    }
}
