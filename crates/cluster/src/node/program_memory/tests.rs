use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

fn mapping(first: &str, own: &str) -> String {
    format!(
        "{first}\nSize:   64 kB\nRss:    64 kB\nPrivate_Dirty:   0 kB\nAnonymous:   {own}\nVmFlags: rd ex mr mw me\n"
    )
}

fn found(smaps: &str, program: &str) -> Vec<(usize, usize)> {
    let found = unchanged(smaps.as_bytes(), Path::new(program)).expect("mappings");
    found.into_iter().map(|mapping| (mapping.start, mapping.end)).collect()
}

#[test]
fn only_the_programs_own_unchanged_text_and_constants_are_found() {
    let program = "/opt/a folder/ferry (deleted)";
    let own = |addresses: &str, permissions: &str| {
        format!("{addresses} {permissions} 00001000 fe:01 1234                       {program}")
    };
    let text = [
        mapping("10000-20000 r-xp 00000000 fe:01 99     /opt/a folder/other", "0 kB"),
        mapping(&own("400000-410000", "r--p"), "0 kB"),
        mapping(&own("410000-480000", "r-xp"), "0 kB"),
        // What can be written, what is shared, and what somebody changed.
        mapping(&own("480000-490000", "rwxp"), "0 kB"),
        mapping(&own("490000-4a0000", "r-xs"), "0 kB"),
        mapping(&own("4a0000-4b0000", "r-xp"), "4 kB"),
        mapping(&own("4b0000-4c0000", "r-xp"), "0 kB"),
        // Constants that the loader has made.
        mapping(&own("4c0000-4c8000", "r--p"), "8 kB"),
        mapping(&own("4c8000-4d0000", "rw-p"), "64 kB"),
        mapping("4d0000-4e0000 rw-p 00000000 00:00 0", "64 kB"),
        mapping("4e0000-4f0000 r-xp 00000000 00:00 0    [vdso]", "0 kB"),
    ]
    .concat();
    assert_eq!(found(&text, program), [(0x40_0000, 0x41_0000), (0x41_0000, 0x48_0000), (0x4b_0000, 0x4c_0000)]);
    assert_eq!(found(&text, "/opt/a folder/other"), [(0x1_0000, 0x2_0000)]);
    for other in ["", "/opt/a folder/ferry", "[vdso]x", "ferry (deleted)"] {
        assert!(found(&text, other).is_empty(), "{other}");
    }
    // A kernel that does not tell of changed pages.
    assert!(found(&own("410000-480000", "r-xp"), program).is_empty());
    for broken in ["", "\n", "-", "x-y r-xp", "10-20", "10-20 r-xp", "zz-20 r-xp 0 0 0 /f", "Anonymous: 0 kB"] {
        assert!(found(broken, "/f").is_empty(), "{broken}");
    }
}

#[test]
fn the_program_goes_on_while_its_pages_are_given_back() {
    let work = |round: u64| {
        let value = serde_json::json!({"round": round, "text": format!("{round:x}").repeat(9)});
        let again: serde_json::Value = serde_json::from_str(&value.to_string()).expect("JSON");
        assert_eq!(again, value);
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..).take_while(|_| !done.load(Ordering::Relaxed)).map(work).count()))
            .collect();
        for round in 0..200 {
            let bytes = give_back().expect("the kernel tells what is mapped");
            assert!(bytes > 100 << 10, "{bytes}");
            work(round);
        }
        done.store(true, Ordering::Relaxed);
        for thread in threads {
            assert!(thread.join().expect("no panic") > 0);
        }
    });
}
