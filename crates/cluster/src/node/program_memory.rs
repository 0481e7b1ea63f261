//! The program's own text and constants in memory. Starting uses many of them once, and what was used once stays mapped: it is
//! given back from time to time, and what is still used comes back by itself.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The first requests of a node that is Ready run much of what its start ran.
const AFTER_START: Duration = Duration::from_secs(10);
/// A page that is used comes back within microseconds, so that this could be done more often; it would be for nothing.
const BETWEEN: Duration = Duration::from_secs(300);

/// Ends only where the kernel does not tell what is mapped.
pub async fn keep_small() {
    let mut wait = AFTER_START;
    loop {
        tokio::time::sleep(wait).await;
        wait = BETWEEN;
        match tokio::task::spawn_blocking(give_back).await {
            Ok(Ok(bytes)) => tracing::debug!(bytes, "memory of the program's file that is not used was given back"),
            Ok(Err(error)) => return tracing::debug!("memory of the program's file is not given back: {error}"),
            Err(_panicked) => {
                return tracing::error!("memory of the program's file is not given back: that made a panic");
            }
        }
    }
}

/// Takes the pages of the program's text and constants out of this process's memory. Says how much there is of them.
fn give_back() -> io::Result<usize> {
    let program = fs::read_link("/proc/self/exe")?;
    let unchanged = unchanged(BufReader::new(File::open("/proc/self/smaps")?), &program)?;
    for Range { start, end } in &unchanged {
        let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(*start);
        #[expect(
            unsafe_code,
            reason = "a mapping that the loader made has no owner in Rust: it is known by its address alone"
        )]
        // SAFETY: the kernel has just said that this is a private mapping of the program's own file, not writable, and that each of
        // its pages is the file's (`unchanged`). Nothing of this process changes them, so that it stays that way, and nobody unmaps
        // them. What a private mapping of a file loses here is read from the file when it is used next, and is the same bytes: no code
        // and no constant changes, also for threads that run it at this moment. Whoever could write to the file of a program that
        // runs would change its pages without this, too: they are the page cache's.
        let outcome = unsafe { libc::madvise(start, end - start.addr(), libc::MADV_DONTNEED) };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(unchanged.iter().map(ExactSizeIterator::len).sum())
}

/// The addresses of a program's text and constants by `/proc/PID/smaps`: private mappings of its file that cannot be written, and
/// that have no page of their own. A page of its own is one that somebody changed, as a debugger does and the loader before it
/// takes the right to write away: the file does not have it.
fn unchanged(smaps: impl BufRead, program: &Path) -> io::Result<Vec<Range<usize>>> {
    let mut found = Vec::new();
    // The mapping whose lines come now, if it may be one.
    let mut candidate = None;
    let mut seen = false;
    for line in smaps.lines() {
        let line = line?;
        if let Some(mapping) = Mapping::read(&line) {
            let is_own = Path::new(mapping.file) == program;
            // Its mappings stand together. The kernel counts the pages of what is read, so that the rest is not read.
            if seen && !is_own {
                break;
            }
            seen |= is_own;
            candidate = (is_own && matches!(mapping.permissions, "r-xp" | "r--p")).then_some(mapping.addresses);
        } else if let Some(own) = line.strip_prefix("Anonymous:")
            && let Some(addresses) = candidate.take()
            && own.trim() == "0 kB"
        {
            found.push(addresses);
        }
    }
    Ok(found)
}

/// The first line of a mapping: `55d0c8a00000-55d0c8b00000 r-xp 00001000 fe:01 1234   /usr/bin/ferry`.
struct Mapping<'a> {
    addresses: Range<usize>,
    permissions: &'a str,
    /// Empty for memory.
    file: &'a str,
}

impl<'a> Mapping<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let mut parts = line.splitn(6, ' ');
        let (start, end) = parts.next()?.split_once('-')?;
        let address = |text| usize::from_str_radix(text, 16).ok();
        let addresses = address(start)?..address(end)?;
        let permissions = parts.next()?;
        let file = parts.nth(3).unwrap_or_default().trim_start();
        Some(Self { addresses, permissions, file })
    }
}

#[cfg(test)]
mod tests;
