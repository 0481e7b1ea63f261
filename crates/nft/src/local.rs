//! The addresses that are this machine's own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Of one file; more than thousands of addresses need.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// Of both families, in the network that this thread is in. Blocks for as long as it takes to read two files of `/proc`.
pub fn local_addresses() -> std::io::Result<BTreeSet<IpAddr>> {
    let mut found = BTreeSet::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in lines("fib_trie")? {
        let line = line?;
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            last = address.trim().parse().ok();
        } else if line.contains("/32 host LOCAL") {
            found.extend(last.map(IpAddr::V4));
        }
    }
    match lines("if_inet6") {
        Ok(lines) => {
            for line in lines {
                found.extend(sixth(&line?).map(IpAddr::V6));
            }
        }
        // A kernel without IPv6.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

fn lines(file: &str) -> std::io::Result<impl Iterator<Item = std::io::Result<String>>> {
    let file = File::open(format!("/proc/thread-self/net/{file}"))?;
    Ok(BufReader::new(file.take(MOST_BYTES)).lines())
}

/// The address at the beginning of a line of `/proc/net/if_inet6`.
fn sixth(line: &str) -> Option<Ipv6Addr> {
    let digits = line.split_ascii_whitespace().next().filter(|digits| digits.len() == 32)?;
    Some(Ipv6Addr::from_bits(u128::from_str_radix(digits, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_knows_itself() {
        let own = local_addresses().expect("addresses");
        assert!(own.contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)) && !own.contains(&IpAddr::from([192, 0, 2, 1])));
    }

    #[test]
    fn addresses_of_six_are_read_as_the_kernel_writes_them() {
        let line = "fe80000000000000849c21fffeac8403 9c4 40 20 80 eth0";
        assert_eq!(sixth(line), "fe80::849c:21ff:feac:8403".parse().ok());
        for broken in ["", "fe80", "zz80000000000000849c21fffeac8403 1"] {
            assert_eq!(sixth(broken), None, "{broken}");
        }
    }
}
