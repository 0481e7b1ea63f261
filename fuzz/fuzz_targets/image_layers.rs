//! Layers of images: whatever one says, unpacking ends, and what stands beside the image stays as it is.
#![no_main]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

const BLOCK: usize = 512;

fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else { return };
    let mut archive = rest.to_vec();
    // The fuzzer does not guess checksums; without them hardly anything of an archive is looked at.
    if first % 4 != 0 {
        repair(&mut archive);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [image, victim] = ["image", "victim"].map(|name| folder.path().join(name));
    fs::create_dir(&image).expect("a folder");
    fs::create_dir(&victim).expect("a folder");
    fs::write(victim.join("kept"), "kept").expect("a file");
    let digest = format!("sha256:{:x}", Sha256::digest(&archive));
    let _ = ferry_runtime::unpack_layer(&archive, &image, &digest);
    assert_eq!(names(folder.path()), ["image", "victim"]);
    assert_eq!(names(&victim), ["kept"]);
    assert_eq!(fs::read_to_string(victim.join("kept")).expect("a file"), "kept");
    let kept = fs::metadata(victim.join("kept")).expect("a file");
    assert_eq!((kept.nlink(), kept.mode() & 0o7777), (1, 0o644));
});

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Makes the checksum of every header right.
fn repair(archive: &mut [u8]) {
    let mut at = 0;
    while let Some(header) = archive.get_mut(at..at + BLOCK) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = std::str::from_utf8(&header[124..136]).unwrap_or_default();
        let size = usize::from_str_radix(size.trim_matches(['\0', ' ']), 8).unwrap_or_default();
        at = at.saturating_add(BLOCK).saturating_add(size.next_multiple_of(BLOCK));
    }
}
