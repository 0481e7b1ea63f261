//! Random steps for the comparison with the model.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::conformance::model::{Claim, ModelOp, Step, Verb};

fn op() -> impl Strategy<Value = ModelOp> {
    let verb = prop_oneof![
        4 => Just(Verb::Create),
        4 => Just(Verb::Update),
        2 => Just(Verb::Delete),
        1 => Just(Verb::Check),
    ];
    let claim =
        prop_oneof![8 => Just(Claim::Right), 1 => Just(Claim::Zero), 1 => Just(Claim::Old), 1 => Just(Claim::Future)];
    (verb, 0..6_u8, any::<u8>(), claim).prop_map(|(verb, key, value, claim)| ModelOp { verb, key, value, claim })
}

pub(crate) fn steps(most: usize, reopen: bool) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => vec(op(), 1..4).prop_map(Step::Commit),
        2 => (0..12_u64, 0..4_usize).prop_map(|(back, limit)| Step::Range { back, limit }),
        2 => (0..12_u64).prop_map(|back| Step::Watch { back }),
        1 => (0..8_u64).prop_map(|back| Step::Compact { back }),
        u32::from(reopen) => Just(Step::Reopen),
    ];
    vec(step, 1..most)
}
