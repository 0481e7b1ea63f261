//! Filters of rules and backends.

use std::sync::Arc;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};

use super::backends::{Asker, Backends, Use};
use super::conditions::Problem;
use crate::api::{HeaderFilter, PathModifier, RequestRedirect, RouteFilter};
use crate::table::{Cors, Filters, HeaderEdit, Mirror, PathRewrite, Redirect, Rewrite};

/// What came of a list of filters: those, a reference that leads nowhere, and what is not supported.
#[derive(Default)]
pub struct Compiled {
    pub filters: Filters,
    pub unresolved: Option<Problem>,
    pub unsupported: Option<Problem>,
}

pub fn compile(backends: &Backends<'_>, asker: Asker<'_>, list: &[RouteFilter], purpose: Use) -> Compiled {
    let mut compiled = Compiled::default();
    for filter in list {
        add(&mut compiled, backends, asker, filter, purpose);
    }
    compiled
}

fn unsupported(message: impl Into<String>) -> Problem {
    Problem::new("UnsupportedValue", message)
}

fn add(compiled: &mut Compiled, backends: &Backends<'_>, asker: Asker<'_>, filter: &RouteFilter, purpose: Use) {
    let filters = &mut compiled.filters;
    let mut refuse = |problem: Problem, filters: &mut Filters| {
        filters.broken = true;
        compiled.unsupported.get_or_insert(problem);
    };
    match filter.type_.as_str() {
        "RequestHeaderModifier" | "ResponseHeaderModifier" => {
            let is_request = filter.type_ == "RequestHeaderModifier";
            let edit = if is_request { &filter.request_header_modifier } else { &filter.response_header_modifier };
            match edit.as_ref().map(headers) {
                Some(Ok(edit)) if is_request => filters.request.push(edit),
                Some(Ok(edit)) => filters.response.push(edit),
                Some(Err(name)) => refuse(unsupported(format!("{name:?} is not a header that can be set")), filters),
                None => {}
            }
        }
        "RequestMirror" => {
            let Some(mirror) = &filter.request_mirror else { return };
            let (target, problem) = backends.resolve(asker, &mirror.backend_ref, purpose);
            let (numerator, denominator) = match (&mirror.fraction, mirror.percent) {
                (Some(fraction), _) => (fraction.numerator, fraction.denominator.unwrap_or(100).max(1)),
                (None, Some(percent)) => (percent, 100),
                (None, None) => (1, 1),
            };
            if compiled.unresolved.is_none() {
                compiled.unresolved = problem;
            }
            filters.mirrors.push(Mirror::new(target, numerator, denominator));
        }
        "RequestRedirect" if purpose == Use::Http => {
            if let Some(redirect) = &filter.request_redirect {
                filters.redirect = Some(self::redirect(redirect));
            }
        }
        "URLRewrite" if purpose == Use::Http => {
            let Some(rewrite) = &filter.url_rewrite else { return };
            let hostname = rewrite.hostname.as_deref().and_then(|name| HeaderValue::from_str(name).ok());
            filters.rewrite = Some(Rewrite { hostname, path: path(rewrite.path.as_ref()), pattern: None });
        }
        "CORS" if purpose == Use::Http => {
            let Some(cors) = &filter.cors else { return };
            let boxed = |list: &[String]| list.iter().map(|text| text.as_str().into()).collect();
            filters.cors = Some(Arc::new(Cors {
                origins: boxed(&cors.allow_origins),
                credentials: cors.allow_credentials.unwrap_or(false),
                methods: boxed(&cors.allow_methods),
                headers: boxed(&cors.allow_headers),
                expose: boxed(&cors.expose_headers),
                max_age: cors.max_age.unwrap_or(5),
            }));
        }
        "ExtensionRef" => {
            filters.broken = true;
            let kind = filter.extension_ref.as_ref().map(|named| format!("{}/{}", named.group, named.kind));
            let message = format!("there are no filters of kind {}", kind.unwrap_or_default());
            compiled.unresolved.get_or_insert(Problem::new("InvalidKind", message));
        }
        other => refuse(unsupported(format!("filters of type {other} are not supported here")), filters),
    }
}

fn headers(filter: &HeaderFilter) -> Result<HeaderEdit, String> {
    let name = |text: &str| HeaderName::from_bytes(text.as_bytes()).map_err(|_| text.to_owned());
    let pair = |header: &crate::api::HeaderValue| {
        let value = HeaderValue::from_str(&header.value).map_err(|_| header.name.clone())?;
        Ok::<_, String>((name(&header.name)?, value))
    };
    Ok(HeaderEdit {
        set: filter.set.iter().map(pair).collect::<Result<_, _>>()?,
        add: filter.add.iter().map(pair).collect::<Result<_, _>>()?,
        remove: filter.remove.iter().map(|text| name(text)).collect::<Result<_, _>>()?,
    })
}

fn redirect(spec: &RequestRedirect) -> Redirect {
    Redirect {
        scheme: spec.scheme.as_deref().map(Into::into),
        hostname: spec.hostname.as_deref().map(Into::into),
        port: spec.port,
        path: path(spec.path.as_ref()),
        status: spec.status_code.and_then(|code| StatusCode::from_u16(code).ok()).unwrap_or(StatusCode::FOUND),
    }
}

fn path(modifier: Option<&PathModifier>) -> Option<PathRewrite> {
    let modifier = modifier?;
    match modifier.type_.as_str() {
        "ReplaceFullPath" => {
            let full = modifier.replace_full_path.as_deref().unwrap_or("/");
            Some(PathRewrite::Full(if full.starts_with('/') { full.into() } else { format!("/{full}").into() }))
        }
        _ => Some(PathRewrite::Prefix(modifier.replace_prefix_match.as_deref().unwrap_or("/").into())),
    }
}
