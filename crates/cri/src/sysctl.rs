//! The two ways to write the name of a sysctl: the first separator tells which it is, and what belongs to a name stands as the other.

/// As the runtime is told: `net.ipv4.conf.eth0/1.forwarding`.
pub fn dotted(name: &str) -> String {
    written(name, '.')
}

/// As the file below `/proc/sys` is called: `net/ipv4/conf/eth0.1/forwarding`.
pub fn path(name: &str) -> String {
    written(name, '/')
}

fn written(name: &str, separator: char) -> String {
    if name.chars().find(|c| matches!(c, '.' | '/')).is_none_or(|first| first == separator) {
        return name.to_owned();
    }
    let swapped = name.chars().map(|c| match c {
        '.' => '/',
        '/' => '.',
        other => other,
    });
    swapped.collect()
}

#[cfg(test)]
mod tests {
    use super::{dotted, path};

    #[test]
    fn dots_and_slashes_are_swapped_where_the_first_is_the_other() {
        for (with_dots, with_slashes) in [
            ("kernel.shm_rmid_forced", "kernel/shm_rmid_forced"),
            ("net.ipv4.conf.eth0/1.forwarding", "net/ipv4/conf/eth0.1/forwarding"),
            ("plain", "plain"),
        ] {
            for name in [with_dots, with_slashes] {
                assert_eq!((dotted(name).as_str(), path(name).as_str()), (with_dots, with_slashes));
            }
        }
    }
}
