use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const ALLOW: u32 = 0x7FFF_0000;
const X86_64: u32 = 0xC000_003E;

fn errno(number: u32) -> u32 {
    0x0005_0000 | number
}

/// What the kernel does with a program: the few instructions that are used.
fn run(program: &[Instruction], audit: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend(number.to_le_bytes());
    data.extend(audit.to_le_bytes());
    data.extend(0u64.to_le_bytes());
    arguments.iter().for_each(|argument| data.extend(argument.to_le_bytes()));
    let (mut register, mut place) = (0u32, 0usize);
    loop {
        let Instruction { code, if_true, if_false, value } = program[place];
        place += 1;
        let mut choose = |holds: bool| place += usize::from(if holds { if_true } else { if_false });
        match code {
            0x20 => {
                let at = value as usize;
                register = u32::from_le_bytes(data[at..at + 4].try_into().expect("four bytes"));
            }
            0x05 => place += value as usize,
            0x15 => choose(register == value),
            0x25 => choose(register > value),
            0x35 => choose(register >= value),
            0x54 => register &= value,
            0x06 => return value,
            other => panic!("instruction {other:x}"),
        }
    }
}

fn compiled(profile: Value) -> Filter {
    compile(&serde_json::from_value(profile).expect("a profile")).expect("compiled")
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_are_told_apart_by_number_and_architecture() {
    let filter = compiled(json!({
        "defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86"],
        "syscalls": [
            {"names": ["read", "openat", "no_such_call"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
            {"names": ["mount"], "action": "SCMP_ACT_KILL_PROCESS"},
        ],
    }));
    let check =
        |audit, number, wanted| assert_eq!(run(&filter.instructions, audit, number, [0; 6]), wanted, "{number}");
    check(X86_64, 0, ALLOW);
    check(X86_64, 1, errno(1));
    check(X86_64, 257, ALLOW);
    check(X86_64, 435, errno(38));
    check(X86_64, 165, 0x8000_0000);
    // Newer than all that is named; of the x32 ABI; of the 32-bit ABI, where 3 is read and 0 is not.
    check(X86_64, 436, errno(38));
    check(X86_64, 0x4000_0000, errno(38));
    check(0x4000_0003, 3, ALLOW);
    check(0x4000_0003, 0, errno(1));
    // Of no architecture of this machine.
    check(0xC000_00B7, 63, 0x8000_0000);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_usual_profile_holds() {
    let profile = crate::spec::seccomp::usual(|_| false);
    let filter = compiled(profile);
    let of = |number, first: u64| run(&filter.instructions, X86_64, number, [first, 0, 0, 0, 0, 0]);
    let (clone, personality, mount, getpid) = (56, 135, 165, 39);
    assert_eq!((of(getpid, 0), of(mount, 0)), (ALLOW, errno(1)));
    let socket = 41;
    for family in (0..46).filter(|family| *family != 40) {
        assert_eq!(of(socket, family), ALLOW, "{family}");
    }
    assert_eq!((of(socket, 40), of(socket, 1 << 32 | 40)), (errno(1), errno(1)), "no way around the network namespace");
    assert_eq!((of(clone, 0x11), of(clone, 0x1000_0011)), (ALLOW, errno(1)));
    assert_eq!((of(personality, 8), of(personality, 0xffff_ffff), of(personality, 5)), (ALLOW, ALLOW, errno(1)));
    let filter = compiled(crate::spec::seccomp::usual(|capability| capability == "CAP_SYS_ADMIN"));
    assert_eq!(run(&filter.instructions, X86_64, mount, [0; 6]), ALLOW);
}

/// What a profile forbids without conditions is not allowed by one with conditions, in either order.
#[cfg(target_arch = "x86_64")]
#[test]
fn rules_without_conditions_go_before_those_with() {
    let mount = 165;
    let one = |action: &str, errno: Option<u32>, conditional: bool| {
        let args = if conditional { json!([{"index": 0, "value": 5, "op": "SCMP_CMP_EQ"}]) } else { json!([]) };
        json!({"names": ["mount"], "action": action, "errnoRet": errno, "args": args})
    };
    let (allow, refuse, other) = ("SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO", "SCMP_ACT_KILL_PROCESS");
    let check = |default: &str, rules: Value, wanted: [u32; 2]| {
        let filter = compiled(json!({"defaultAction": default, "syscalls": rules}));
        let seen = [5, 6].map(|first| run(&filter.instructions, X86_64, mount, [first, 0, 0, 0, 0, 0]));
        assert_eq!(seen, wanted, "{default}: {rules}");
    };
    let (holds, certain) = (|action, errno| one(action, errno, true), |action, errno| one(action, errno, false));
    check(allow, json!([holds(allow, None), certain(refuse, Some(13))]), [errno(13); 2]);
    check(other, json!([holds(allow, None), certain(refuse, Some(13))]), [errno(13); 2]);
    check(other, json!([certain(refuse, Some(13)), holds(allow, None)]), [errno(13); 2]);
    // The first of two without conditions counts.
    check(other, json!([certain(allow, None), certain(refuse, None)]), [ALLOW; 2]);
    // One that says what is done anyway is none: neither hides it the other, nor does it end the search.
    check(refuse, json!([holds(allow, None), certain(refuse, None)]), [ALLOW, errno(1)]);
    check(refuse, json!([holds(refuse, None), holds(allow, None)]), [ALLOW, errno(1)]);
    check(refuse, json!([holds(allow, None), certain(refuse, Some(38))]), [errno(38); 2]);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn calls_newer_than_the_profile_do_not_exist_unless_all_are_let_through() {
    for (default, wanted) in [
        ("SCMP_ACT_ERRNO", errno(38)),
        ("SCMP_ACT_KILL", errno(38)),
        ("SCMP_ACT_KILL_PROCESS", errno(38)),
        ("SCMP_ACT_TRAP", errno(38)),
        ("SCMP_ACT_ALLOW", ALLOW),
        ("SCMP_ACT_LOG", 0x7FFC_0000),
    ] {
        let filter = compiled(json!({"defaultAction": default,
            "syscalls": [{"names": ["clone3", "read", "not_known_yet"], "action": "SCMP_ACT_ERRNO", "errnoRet": 22}]}));
        assert_eq!(run(&filter.instructions, X86_64, 436, [0; 6]), wanted, "{default}");
        assert_eq!(run(&filter.instructions, X86_64, 435, [0; 6]), errno(22), "{default}");
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let refused = |profile: Value| {
        let profile: Profile = serde_json::from_value(profile).expect("a profile");
        assert!(compile(&profile).is_err());
    };
    refused(json!({"defaultAction": "SCMP_ACT_NOTIFY"}));
    refused(json!({"defaultAction": "SCMP_ACT_ALLOW", "flags": ["SECCOMP_FILTER_FLAG_NEW_LISTENER"]}));
    let argument = |index: u32, op: &str| {
        json!({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{"names": ["read"], "action": "SCMP_ACT_TRAP",
               "args": [{"index": index, "value": 1, "op": op}]}]})
    };
    refused(argument(6, "SCMP_CMP_EQ"));
    refused(argument(0, "SCMP_CMP_MAYBE"));
}

proptest! {
    /// Conditions on 64-bit arguments mean what they say.
    #[test]
    fn conditions_compare_all_64_bits(
        argument in prop_oneof![any::<u64>(), 0u64..4, Just(u64::MAX), Just(1 << 32)],
        value in prop_oneof![any::<u64>(), 0u64..4, Just(u64::MAX), Just(1 << 32)],
        mask in any::<u64>(),
    ) {
        let cases: [(&str, u64, u64, bool); 7] = [
            ("SCMP_CMP_EQ", value, 0, argument == value),
            ("SCMP_CMP_NE", value, 0, argument != value),
            ("SCMP_CMP_LT", value, 0, argument < value),
            ("SCMP_CMP_LE", value, 0, argument <= value),
            ("SCMP_CMP_GE", value, 0, argument >= value),
            ("SCMP_CMP_GT", value, 0, argument > value),
            ("SCMP_CMP_MASKED_EQ", mask, value & mask, argument & mask == value & mask),
        ];
        for (op, value, second, holds) in cases {
            let leaf = Leaf { tried: vec![(vec![Condition::new(2, op, value, second).expect("known")], 7)], otherwise: 9 };
            let mut program = Program::default();
            program.architecture(1, &BTreeMap::from([(5, leaf)]), 3, 4);
            let program = program.finish(0);
            let seen = run(&program, 1, 5, [0, 0, argument, 0, 0, 0]);
            prop_assert_eq!(seen == 7, holds, "{} {:x} {:x}", op, argument, value);
            prop_assert_eq!(run(&program, 1, 4, [0; 6]), 3);
            prop_assert_eq!(run(&program, 1, 6, [0; 6]), 4);
        }
    }
}
