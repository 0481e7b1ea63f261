//! What calls can cost, and how large what they give can be.

use super::{Coster, Entries, LIST, Operand, Range};
use crate::ast::{Expr, Kind, Literal};
use crate::types::Type;

/// Per character of a text that is walked over.
const TEXT: f64 = 0.1;
/// Per character of a pattern.
const PATTERN: f64 = 0.25;

fn one() -> Range {
    Range::exactly(1)
}

/// A whole number that stands in the text.
fn number(operand: Option<&Operand<'_>>, otherwise: u64) -> u64 {
    match operand.map(|operand| &operand.expression.kind) {
        Some(Kind::Literal(Literal::Int(value))) => u64::try_from(*value).unwrap_or(0),
        _ => otherwise,
    }
}

fn allocating(factor: f64, size: Range) -> (Range, Option<Range>) {
    (size.times(factor).plus(one()).plus(Range::exactly(LIST)), Some(size))
}

impl<'a> Coster<'a> {
    /// The cost of a call with its arguments, and the size of its result where that is known.
    pub(super) fn function(
        &mut self,
        expression: &Expr,
        function: &str,
        overload: &str,
        target: Option<&Operand<'a>>,
        arguments: &[Operand<'a>],
        costs: &[Range],
    ) -> (Range, Option<Range>) {
        let sum = costs.iter().fold(Range::new(0, 0), |sum, cost| sum.plus(*cost));
        let known = listed(overload, target, arguments).or_else(|| self.library(function, overload, target, arguments));
        if let Some((cost, size)) = known {
            return (cost.plus(sum), size);
        }
        let size = |index: usize| arguments.get(index).map_or(Range::UNKNOWN, Operand::size);
        match overload {
            "string_format" => {
                if let Some(target) = target {
                    return (target.size().times(TEXT).plus(sum), None);
                }
            }
            "string_to_bytes" => {
                let size = size(0);
                return (size.times(TEXT).plus(sum), Some(Range::new(size.min, size.max.wrapping_mul(4))));
            }
            "bytes_to_string" => {
                let size = size(0);
                return (size.times(TEXT).plus(sum), Some(Range::new(size.min / 4, size.max)));
            }
            "strings_quote" => {
                let size = size(0);
                let quoted = Range::new(size.min.wrapping_add(2), size.max.wrapping_mul(2).wrapping_add(2));
                return (size.times(TEXT).plus(sum), Some(quoted));
            }
            "starts_with_string" | "ends_with_string" => return (size(0).times(TEXT).plus(sum), None),
            "in_list" => return (size(1).times(1.0).plus(sum), None),
            "matches" | "matches_string" => {
                let (text, pattern) = match target {
                    Some(target) => (target.size(), size(0)),
                    None => (size(0), size(1)),
                };
                return (text.plus(one()).times(TEXT).multiply(pattern.times(PATTERN)).plus(sum), None);
            }
            "contains_string" => {
                if let Some(target) = target {
                    return (target.size().times(TEXT).multiply(size(0).times(TEXT)).plus(sum), None);
                }
            }
            "logical_or" | "logical_and" => {
                let both = costs[0].plus(costs[1]);
                return (Range::new(costs[0].min, both.max), None);
            }
            "conditional" => {
                let result = size(1).union(size(2));
                if let (Some(one), Some(two)) =
                    (self.entries_of(arguments[1].expression), self.entries_of(arguments[2].expression))
                {
                    self.entries.insert(expression.id, joined(&one, &two));
                }
                return (costs[0].plus(costs[1].union(costs[2])), Some(result));
            }
            "add_string" | "add_bytes" | "add_list" => {
                let result = size(0).plus(size(1));
                if let (Some(one), Some(two)) =
                    (self.entries_of(arguments[0].expression), self.entries_of(arguments[1].expression))
                {
                    self.entries.insert(expression.id, joined(&one, &two));
                }
                let cost = if overload == "add_list" { one() } else { result.times(TEXT) };
                return (cost.plus(sum), Some(result));
            }
            "less_string"
            | "greater_string"
            | "less_equals_string"
            | "greater_equals_string"
            | "less_bytes"
            | "greater_bytes"
            | "less_equals_bytes"
            | "greater_equals_bytes"
            | "equals"
            | "not_equals" => {
                let smaller = size(0).max.min(size(1).max);
                let least = u64::from(smaller > 0);
                return (Range::new(least, smaller).times(TEXT).plus(sum), None);
            }
            _ => {}
        }
        (one().plus(sum), None)
    }

    fn sized(&self, operand: &Operand<'_>) -> Range {
        operand.size.or_else(|| self.size_at(&operand.way)).unwrap_or(Range::UNKNOWN)
    }

    /// The type of a list's elements, and their size.
    fn elements(&self, list: &Operand<'_>) -> Option<(Type, Range)> {
        let (Type::List(of) | Type::Map(of, _) | Type::Optional(of)) = &list.ty else { return None };
        let mut way = list.way.clone();
        let size = if way.is_empty() {
            None
        } else {
            way.push("@items".to_owned());
            self.size_at(&way)
        };
        Some(((**of).clone(), size.unwrap_or(Range::UNKNOWN)))
    }

    /// Kubernetes' libraries.
    fn library(
        &self,
        function: &str,
        overload: &str,
        target: Option<&Operand<'_>>,
        arguments: &[Operand<'_>],
    ) -> Option<(Range, Option<Range>)> {
        let argument = |index: usize| arguments.get(index).map(|argument| self.sized(argument));
        let of_target = || target.map(|target| self.sized(target));
        Some(match function {
            "check" => (Range::exactly(350_000), None),
            "serviceAccount"
            | "path"
            | "group"
            | "resource"
            | "subresource"
            | "namespace"
            | "name"
            | "allowed"
            | "reason"
            | "error"
            | "errored"
            | "masked"
            | "prefixLength"
            | "family"
            | "isUnspecified"
            | "isLoopback"
            | "isLinkLocalMulticast"
            | "isLinkLocalUnicast"
            | "isGlobalUnicast"
            | "format.named"
            | "sign"
            | "asInteger"
            | "isInteger"
            | "asApproximateFloat"
            | "isGreaterThan"
            | "isLessThan"
            | "compareTo"
            | "add"
            | "sub"
            | "major"
            | "minor"
            | "patch"
            | "getScheme"
            | "getHostname"
            | "getHost"
            | "getPort"
            | "getEscapedPath"
            | "getQuery" => (one(), None),
            "fieldSelector" | "labelSelector" => {
                let length = argument(0)?;
                (Range::exactly(LIST).plus(length.times(TEXT)).plus(length.times(0.5).times(50.0)), None)
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let target = target?;
                let size = self.sized(target);
                match self.elements(target) {
                    Some((Type::String | Type::Bytes, of)) => (size.multiply(one().plus(of.times(TEXT))), None),
                    Some(_) => (size.multiply(one()), None),
                    None => (size.times(TEXT), None),
                }
            }
            "url" | "jsonpatch.escapeKey" => {
                let size = argument(0)?;
                (size.times(TEXT), Some(size))
            }
            "lowerAscii" | "upperAscii" | "substring" | "trim" => {
                let size = of_target()?;
                (size.times(TEXT), Some(size))
            }
            "replace" => {
                let size = of_target()?;
                (size.times(2.0 * TEXT), Some(replaced(size, argument(0)?, argument(1)?)))
            }
            "split" => {
                let size = of_target()?;
                let most = number(arguments.get(1), size.max);
                (size.times(2.0 * TEXT), Some(Range::new(0, most)))
            }
            "join" => {
                let list = of_target()?;
                let mut size = Range::new(0, 0);
                if let Some((_, of)) = target.and_then(|target| self.elements(target)) {
                    size = list.multiply(of);
                }
                if let Some(separator) = argument(0) {
                    let gaps = Range::new(list.min.saturating_sub(1), list.max.saturating_sub(1));
                    size = size.plus(separator.multiply(gaps));
                }
                (size.times(TEXT), Some(size))
            }
            "find" | "findAll" => {
                let size = of_target()?;
                let cost = size.plus(one()).times(TEXT).multiply(argument(0)?.times(PATTERN));
                (cost, Some(Range::new(0, size.max)))
            }
            "ip" if overload == "cidr_ip" => (one(), None),
            "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                (argument(0)?.times(TEXT), None)
            }
            "ip.isCanonical" => (argument(0)?.times(2.0 * TEXT), None),
            "containsIP" | "containsCIDR" => {
                let address = Range::new(4, 16);
                let mut cost = address.plus(address).times(TEXT);
                if function == "containsCIDR" {
                    cost = cost.plus(address.times(TEXT)).plus(one());
                }
                if overload.ends_with("_string") {
                    cost = cost.plus(argument(0)?.times(TEXT));
                }
                (cost, None)
            }
            "validate" => (argument(0)?.times(TEXT).times(128.0 * PATTERN), None),
            "_==_" => match (arguments.first().map(|a| &a.ty)?, arguments.get(1).map(|a| &a.ty)?) {
                (Type::Opaque("kubernetes.NamedFormat"), Type::Opaque("kubernetes.NamedFormat")) => {
                    (Range::new(1, 64).times(TEXT), None)
                }
                (Type::Opaque("kubernetes.URL"), Type::Opaque("kubernetes.URL")) => {
                    let size = arguments[1].size.unwrap_or(one());
                    (Range::new(1, size.max).times(TEXT), None)
                }
                (Type::Opaque(left), Type::Opaque(right)) if left == right => (one(), None),
                _ => return None,
            },
            _ => return None,
        })
    }
}

fn joined(one: &Entries, two: &Entries) -> Entries {
    Entries { list: one.list, key: one.key.union(two.key), value: one.value.union(two.value) }
}

/// How long a text can be after replacements.
fn replaced(size: Range, from: Range, to: Range) -> Range {
    let (mut count, mut kept) = (Range::new(0, 0), Range::new(0, 0));
    if from.min == 0 {
        count.max = size.max.saturating_add(1);
        kept.max = size.max;
    } else if to.max <= from.min {
        kept.max = size.max;
    } else {
        count.max = (size.max as f64 / from.min as f64).ceil() as u64;
    }
    if from.max == 0 {
        count.min = size.min.saturating_add(1);
        kept.min = size.min;
    } else if from.max <= to.min {
        kept.min = size.min;
    } else {
        count.min = (size.min as f64 / from.max as f64).ceil() as u64;
    }
    count.multiply(to).plus(kept)
}

/// Lists and sets.
fn listed(overload: &str, target: Option<&Operand<'_>>, arguments: &[Operand<'_>]) -> Option<(Range, Option<Range>)> {
    let size = |operand: Option<&Operand<'_>>| operand.map_or(Range::UNKNOWN, Operand::size);
    let square = |operand| {
        let size: Range = size(operand);
        size.multiply(size)
    };
    Some(match overload {
        "list_slice" => {
            let most = size(target).max;
            let (start, end) = (number(arguments.first(), 0), number(arguments.get(1), most));
            allocating(1.0, Range::exactly(end.wrapping_sub(start)))
        }
        "list_flatten" => allocating(1.0, size(target)),
        "list_flatten_int" => allocating(number(arguments.first(), u64::MAX) as f64, size(target)),
        "lists_range" => allocating(1.0, Range::exactly(number(arguments.first(), u64::MAX))),
        "list_reverse" => allocating(1.0, size(target)),
        "list_distinct" => allocating(2.0, square(target)),
        "list_string_sort" | "list_bytes_sort" => allocating(2.1, square(target)),
        "list_string_sortByAssociatedKeys" | "list_bytes_sortByAssociatedKeys" => {
            allocating(2.1, square(arguments.first()))
        }
        _ if overload.ends_with("_sort") => allocating(2.0, square(target)),
        _ if overload.ends_with("_sortByAssociatedKeys") => allocating(2.0, square(arguments.first())),
        "list_sets_contains_list" | "list_sets_intersects_list" => {
            (size(arguments.first()).multiply(size(arguments.get(1))).plus(one()), None)
        }
        "list_sets_equivalent_list" => {
            (size(arguments.first()).multiply(size(arguments.get(1))).times(2.0).plus(one()), None)
        }
        _ => return None,
    })
}
