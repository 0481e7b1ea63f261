//! The functions there are and the types they take: Kubernetes' environment as data.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::{Type, split};

#[derive(Debug)]
pub(crate) struct Overload {
    pub id: &'static str,
    /// Called on a value: `value.function()`.
    pub member: bool,
    /// The value it is called on comes first.
    pub arguments: Vec<Type>,
    pub result: Type,
}

/// Functions by name, overloads in the order they are tried.
pub(crate) static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in include_str!("functions.tsv").lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let mut next = || columns.next().unwrap_or_default();
        let (name, id, member, arguments, result) = (next(), next(), next(), next(), next());
        let arguments = arguments.trim_start_matches('(');
        let arguments = arguments.strip_suffix(')').unwrap_or(arguments);
        functions.entry(name).or_default().push(Overload {
            id,
            member: member == "member",
            arguments: split(arguments).into_iter().map(Type::parse).collect(),
            result: Type::parse(result),
        });
    }
    functions
});
