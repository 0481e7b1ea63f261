//! The functions expressions can call, one file per library.

pub(crate) mod authorizer;
pub(crate) mod convert;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod network;
pub(crate) mod optional;
pub(crate) mod printf;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod text;
pub(crate) mod time;
pub(crate) mod url;

use crate::error::Error;
use crate::operators;
use crate::program::Bindings;
use crate::value::{Text, Value};

pub(crate) type Outcome<'a> = Result<Value<'a>, Error>;
/// A function; the value it is called on comes first.
pub(crate) type Builtin = for<'a> fn(&[Value<'a>], &dyn Bindings<'a>) -> Outcome<'a>;

fn unknown<'a>(_: &[Value<'a>], _: &dyn Bindings<'a>) -> Outcome<'a> {
    Err(Error::no_such_overload())
}

/// An argument that has to be a text.
pub(crate) fn text<'v, 'a>(arguments: &'v [Value<'a>], index: usize) -> Result<&'v Text<'a>, Error> {
    match arguments.get(index) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn int(arguments: &[Value<'_>], index: usize) -> Result<i64, Error> {
    match arguments.get(index) {
        Some(Value::Int(value)) => Ok(*value),
        _ => Err(Error::no_such_overload()),
    }
}

pub(crate) fn builtin(function: &str) -> Builtin {
    match function {
        "_==_" => operators::eq,
        "_!=_" => operators::ne,
        "_<_" => operators::lt,
        "_<=_" => operators::le,
        "_>_" => operators::gt,
        "_>=_" => operators::ge,
        "_+_" => operators::add,
        "_-_" => operators::subtract,
        "_*_" => operators::multiply,
        "_/_" => operators::divide,
        "_%_" => operators::modulo,
        "-_" => operators::negate,
        "@in" => operators::contained,
        "size" => convert::size,
        "type" => convert::type_of,
        "dyn" => convert::same,
        "bool" => convert::to_bool,
        "bytes" => convert::to_bytes,
        "double" => convert::to_double,
        "int" => convert::to_int,
        "string" => convert::to_string,
        "uint" => convert::to_uint,
        "duration" => convert::to_duration,
        "timestamp" => convert::to_timestamp,
        "getDate" => time::date,
        "getDayOfMonth" => time::day_of_month,
        "getDayOfWeek" => time::day_of_week,
        "getDayOfYear" => time::day_of_year,
        "getFullYear" => time::year,
        "getHours" => time::hours,
        "getMilliseconds" => time::milliseconds,
        "getMinutes" => time::minutes,
        "getMonth" => time::month,
        "getSeconds" => time::seconds,
        "charAt" => text::char_at,
        "contains" => text::contains,
        "endsWith" => text::ends_with,
        "startsWith" => text::starts_with,
        "format" => printf::format,
        "indexOf" => lists::index_of,
        "lastIndexOf" => lists::last_index_of,
        "join" => text::join,
        "lowerAscii" => text::lower,
        "upperAscii" => text::upper,
        "replace" => text::replace,
        "split" => text::split,
        "strings.quote" => text::quote,
        "substring" => text::substring,
        "trim" => text::trim,
        "jsonpatch.escapeKey" => text::escape_key,
        "matches" => regex::matches,
        "find" => regex::find,
        "findAll" => regex::find_all,
        "distinct" => lists::distinct,
        "first" => lists::first,
        "last" => lists::last,
        "flatten" => lists::flatten,
        "isSorted" => lists::is_sorted,
        "lists.range" => lists::range,
        "max" => lists::max,
        "min" => lists::min,
        "reverse" => lists::reverse,
        "slice" => lists::slice,
        "sort" => lists::sort,
        "@sortByAssociatedKeys" => lists::sort_by,
        "sum" => lists::sum,
        "sets.contains" => lists::set_contains,
        "sets.equivalent" => lists::set_equivalent,
        "sets.intersects" => lists::set_intersects,
        "hasValue" => optional::has_value,
        "value" => optional::value,
        "or" => optional::or,
        "orValue" => optional::or_value,
        "optional.none" => optional::none,
        "optional.of" => optional::of,
        "optional.ofNonZeroValue" => optional::of_non_zero,
        "optional.unwrap" | "unwrapOpt" => optional::unwrap,
        "url" => url::url,
        "isURL" => url::is_url,
        "getScheme" => url::scheme,
        "getHost" => url::host,
        "getHostname" => url::hostname,
        "getPort" => url::port,
        "getEscapedPath" => url::escaped_path,
        "getQuery" => url::query,
        "quantity" => quantity::quantity,
        "isQuantity" => quantity::is_quantity,
        "sign" => quantity::sign,
        "isGreaterThan" => quantity::is_greater,
        "isLessThan" => quantity::is_less,
        "compareTo" => quantity::compare,
        "asApproximateFloat" => quantity::as_float,
        "asInteger" => quantity::as_integer,
        "isInteger" => quantity::is_integer,
        "add" => quantity::add,
        "sub" => quantity::sub,
        "semver" => semver::semver,
        "isSemver" => semver::is_semver,
        "major" => semver::major,
        "minor" => semver::minor,
        "patch" => semver::patch,
        "ip" => network::ip,
        "isIP" => network::is_ip,
        "ip.isCanonical" => network::is_canonical,
        "family" => network::family,
        "isUnspecified" => network::is_unspecified,
        "isLoopback" => network::is_loopback,
        "isLinkLocalMulticast" => network::is_link_local_multicast,
        "isLinkLocalUnicast" => network::is_link_local_unicast,
        "isGlobalUnicast" => network::is_global_unicast,
        "cidr" => network::cidr,
        "isCIDR" => network::is_cidr,
        "containsIP" => network::contains_ip,
        "containsCIDR" => network::contains_cidr,
        "prefixLength" => network::prefix_length,
        "masked" => network::masked,
        "format.named" => format::named,
        "validate" => format::validate,
        "path" => authorizer::path,
        "group" => authorizer::group,
        "serviceAccount" => authorizer::service_account,
        "resource" => authorizer::resource,
        "subresource" => authorizer::subresource,
        "namespace" => authorizer::namespace,
        "name" => authorizer::name,
        "fieldSelector" => authorizer::field_selector,
        "labelSelector" => authorizer::label_selector,
        "check" => authorizer::check,
        "allowed" => authorizer::allowed,
        "reason" => authorizer::reason,
        "error" => authorizer::error,
        "errored" => authorizer::errored,
        _ => format::by_function(function).unwrap_or(unknown),
    }
}
