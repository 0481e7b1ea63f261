//! Regular expressions of routes and Ingresses. A few letters can stand for a lot of memory, and for a lot of work: what was made
//! before is used again, and a route, or all Ingresses of a namespace together, get so much and no more.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use regex::{Error, RegexBuilder};

use super::certificates::{Fingerprint, Memo, fingerprint};
use super::conditions::Problem;
use crate::table::Expression;

/// An expression may not take more memory than this once it is compiled, nor more than this again where it is used.
const MOST: usize = 256 << 10;
/// How large one is, is not told: the first of these that is enough counts.
const SIZES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, MOST];
const MIB: usize = 1 << 20;
/// All expressions of a route together.
const MOST_OF_ROUTE: usize = MIB;
/// Ingresses have no rule that limits their number of paths, but they share one table.
const MOST_OF_INGRESSES: usize = 32 * MIB;

/// What an expression came to. None: it cannot be used.
struct Known {
    regex: Option<Expression>,
    size: usize,
}

/// Those that were asked for lately.
#[derive(Default)]
pub struct Expressions(Memo<Known>);

impl Expressions {
    pub fn sweep(&self) {
        self.0.sweep();
    }

    pub fn of_route(&self) -> Budget<'_> {
        Budget { expressions: self, most: MOST_OF_ROUTE, owner: "one route", taken: RefCell::default() }
    }

    pub fn of_ingresses(&self) -> Budget<'_> {
        let owner = "the Ingresses of a namespace";
        Budget { expressions: self, most: MOST_OF_INGRESSES, owner, taken: RefCell::default() }
    }
}

/// How much was taken while a route, or all Ingresses, are resolved once.
pub struct Budget<'a> {
    expressions: &'a Expressions,
    most: usize,
    owner: &'static str,
    /// By namespace.
    taken: RefCell<HashMap<String, Taken>>,
}

/// What a namespace has, and how much that is.
type Taken = (HashMap<Fingerprint, Arc<Known>>, usize);

/// Those that somebody uses: they are not made again as long as this is there.
#[derive(Default)]
pub struct Used(#[expect(dead_code, reason = "it is held, and nobody reads it")] Vec<Arc<Known>>);

impl<'a> Budget<'a> {
    /// The memory of all that was asked for.
    pub fn size(&self) -> usize {
        self.taken.borrow().values().map(|(_, size)| size).sum()
    }

    pub fn of(&'a self, namespace: &'a str) -> Scope<'a> {
        Scope { budget: self, namespace }
    }

    /// By namespace.
    pub fn used(self) -> HashMap<String, Used> {
        let taken = self.taken.into_inner().into_iter();
        taken.map(|(namespace, (has, _))| (namespace, Used(has.into_values().collect()))).collect()
    }
}

/// Those of one namespace.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    budget: &'a Budget<'a>,
    namespace: &'a str,
}

impl Scope<'_> {
    /// An expression that has to match the whole text.
    pub fn whole(&self, pattern: &str) -> Result<Expression, Problem> {
        self.expression(&format!("^(?:{pattern})$"), pattern, false)
    }

    /// `shown` is what its author wrote.
    pub fn expression(&self, full: &str, shown: &str, ignore_case: bool) -> Result<Expression, Problem> {
        let Budget { expressions, most, owner, taken } = self.budget;
        let refused = |why: &str| Err(Problem::new("UnsupportedValue", format!("{shown:?} {why}")));
        let key = fingerprint([full.as_bytes(), &[u8::from(ignore_case)]]);
        let known = || expressions.0.get(key, || Ok(Arc::new(compile(full, ignore_case)))).ok();
        let mut taken = taken.borrow_mut();
        let (has, size) = taken.entry(self.namespace.to_owned()).or_default();
        let found = match has.get(&key) {
            Some(found) => found.clone(),
            None => {
                // Also those that come to nothing: it took as much to find out.
                let found = if *size < *most { known() } else { None };
                let Some(found) = found.filter(|found| size.saturating_add(found.size) <= *most) else {
                    let all = most / MIB;
                    return refused(&format!(
                        "is one regular expression too many: those of {owner} may take {all} MiB"
                    ));
                };
                *size += found.size;
                has.insert(key, found.clone());
                found
            }
        };
        match &found.regex {
            Some(regex) => Ok(regex.clone()),
            None => refused("is not a regular expression that can be used"),
        }
    }
}

fn compile(pattern: &str, ignore_case: bool) -> Known {
    for size in SIZES {
        let mut builder = RegexBuilder::new(pattern);
        match builder.case_insensitive(ignore_case).size_limit(size).dfa_size_limit(MOST).build() {
            Ok(regex) => return Known { regex: Some(Expression::new(regex, size)), size },
            Err(Error::CompiledTooBig(_)) => {}
            Err(_) => return Known { regex: None, size: SIZES[0] },
        }
    }
    Known { regex: None, size: MOST }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_used_or_says_why_not() {
        let all = Expressions::default();
        let budget = all.of_route();
        for (pattern, text, want) in [
            ("/a/[0-9]+", "/a/12", Some(true)),
            ("/a/[0-9]+", "/a/12/b", Some(false)),
            ("(", "", None),
            (r"\w{5000}", "", None),
        ] {
            let found = budget.of("n").whole(pattern);
            assert_eq!(found.as_ref().ok().map(|regex| regex.is_match(text)), want, "{pattern}");
            let why = found.err().map(|problem| problem.message).unwrap_or_default();
            assert_eq!(why.is_empty(), want.is_some(), "{why}");
        }
        assert!(budget.of("n").expression("^/A", "/A", true).is_ok_and(|regex| regex.is_match("/a")));
    }

    /// Thousands of short expressions, each as large as one may be, took gigabytes.
    #[test]
    fn each_has_so_many_and_leaves_the_others_theirs() {
        let all = Expressions::default();
        let large = |number: usize| format!("/{number}/[a-z]{{2000}}");
        let Known { regex, size } = compile(&format!("^(?:{})$", large(0)), false);
        assert!(regex.is_some() && size >= 64 << 10, "{size}");
        for (budget, most, owner) in [
            (all.of_ingresses(), MOST_OF_INGRESSES, "the Ingresses of a namespace may take 32 MiB"),
            (all.of_route(), MOST_OF_ROUTE, "one route may take 1 MiB"),
        ] {
            let served =
                |namespace: &str| (0..600).filter(|number| budget.of(namespace).whole(&large(*number)).is_ok()).count();
            let most = most / size;
            assert_eq!((served("a"), served("a"), served("b")), (most, most, most));
            let why = budget.of("a").whole(&large(599)).expect_err("it is one too many").message;
            assert!(why.contains(owner), "{why}");
        }
        // Another time others may come first.
        assert!(all.of_ingresses().of("a").whole(&large(599)).is_ok());
    }

    /// All of them were made again for one Ingress that changed after two routes that did.
    #[test]
    fn those_in_use_are_not_made_again() {
        let all = Expressions::default();
        let budget = all.of_ingresses();
        budget.of("a").whole("/a").expect("one");
        let used = budget.used();
        for _ in 0..3 {
            all.sweep();
        }
        assert_eq!(all.0.len(), 1);
        drop(used);
        all.sweep();
        assert_eq!(all.0.len(), 0);
    }
}
