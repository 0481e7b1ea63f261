//! What is said stays short, however much there is to say.

use super::{Finding, plural};

/// So many causes, and so many notes.
const FINDINGS: usize = 6;
/// So many lines of one cause, and so many commands.
const DETAILS: usize = 12;
const ADVICE: usize = 8;
/// So many characters of a text.
const LETTERS: usize = 1_500;

/// The first of all that was found, with how much is left out.
pub(super) fn cut(found: Vec<Finding>) -> Vec<Finding> {
    let (notes, held): (Vec<Finding>, Vec<Finding>) = found.into_iter().partition(|finding| finding.note);
    let shown = [(held, "cause"), (notes, "note")].into_iter().flat_map(|(mut part, what)| {
        let more = part.len().saturating_sub(FINDINGS);
        part.truncate(FINDINGS);
        part.iter_mut().for_each(shorten);
        if more > 0
            && let Some(last) = part.last_mut()
        {
            last.details.push(format!("{} not shown", plural(more, &format!("more {what}"))));
        }
        part
    });
    shown.collect()
}

fn shorten(finding: &mut Finding) {
    let more = finding.details.len().saturating_sub(DETAILS);
    finding.details.truncate(DETAILS);
    finding.advice.truncate(ADVICE);
    letters(&mut finding.cause);
    finding.details.iter_mut().for_each(letters);
    if more > 0 {
        finding.details.push(format!("{} not shown", plural(more, "more line")));
    }
}

/// Commands are whole or not there; a text is cut at a letter.
fn letters(text: &mut String) {
    if let Some((end, _)) = text.char_indices().nth(LETTERS) {
        text.truncate(end);
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Reason;
    use super::*;

    #[test]
    fn what_is_left_out_is_counted() {
        let pod = json!({ "kind": "Pod", "metadata": { "name": "p" } });
        let one = |number: usize| {
            let finding = Finding::new(Reason::Crash, &pod, format!("cause {number} {}", "é".repeat(2_000)));
            (0..20).map(|line| format!("line {line}")).fold(finding, Finding::detail)
        };
        let found = cut((0..9).map(one).collect());
        assert_eq!(found.len(), 6);
        assert_eq!(found[0].details.len(), 13);
        assert_eq!(found[0].details[12], "8 more lines not shown");
        assert_eq!(found[5].details.last().unwrap(), "3 more causes not shown");
        assert!(found.iter().all(|finding| finding.cause.chars().count() == 1_501));
        assert_eq!(cut(vec![Finding::new(Reason::Crash, &pod, "a")])[0].details.len(), 0);
    }
}
