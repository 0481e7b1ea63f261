//! The tables of Ingresses: the rules of all spots, at the plain port and at the one with TLS.

use std::sync::Arc;

use super::super::certificates::Certificates;
use super::super::objects::Objects;
use super::super::options::Options;
use super::{HTTP, HTTPS, Ingresses, Touched};
use crate::INGRESS_CONTROLLER;
use crate::table::{HttpRoutes, Listener, PortTable, TlsMode, Transport};

/// If more than one of so many spots are others, the tables are made from all spots: that is less work than to put one after
/// the other into its place.
const FEW: usize = 16;
const ALWAYS_FEW: usize = 64;

impl Ingresses {
    /// What the classes say: the first of ours that says something.
    pub(super) fn of_classes(&mut self, objects: &Objects) {
        let ours = objects.ingress_classes.iter().filter(|class| {
            class.spec.as_ref().and_then(|spec| spec.controller.as_deref()) == Some(INGRESS_CONTROLLER)
        });
        for class in ours {
            match Options::class(class.metadata.annotations.as_ref()) {
                Ok(options) if !options.proxies.is_empty() => {
                    self.proxies = options.proxies;
                    return;
                }
                Ok(_) => {}
                Err(problem) => self.class_problems.push(problem.message),
            }
        }
    }

    /// Makes the rules of what was touched, and puts them into the tables.
    pub(super) fn make(&mut self, certificates: &Certificates, touched: &mut Touched) {
        let budget = certificates.expressions.of_ingresses();
        let is_few = touched.spots.len() <= ALWAYS_FEW || touched.spots.len() <= self.spots.len() / FEW;
        for spot in &touched.spots {
            let Some(claims) = self.spots.get_mut(spot) else { continue };
            let (host, named) = (spot.hostname.as_ref(), spot.specificity());
            let old = claims.rules.take();
            let is_anothers = claims.make(&budget, spot, self.secured.covers(host));
            if is_few {
                if let Some((plain, secure)) = &old {
                    Arc::make_mut(&mut self.plain).remove(host, named, plain);
                    Arc::make_mut(&mut self.secure).remove(host, named, secure);
                }
                if let Some((plain, secure)) = &claims.rules {
                    Arc::make_mut(&mut self.plain).insert(host, named, plain);
                    Arc::make_mut(&mut self.secure).insert(host, named, secure);
                }
            }
            let told = claims.list.iter().take(if is_anothers { usize::MAX } else { 1 });
            touched.told.extend(told.map(|claim| super::super::objects::key(&claim.common.ingress.metadata)));
            if claims.list.is_empty() {
                self.spots.remove(spot);
            }
        }
        if !is_few {
            let all = self.spots.iter().filter_map(|(spot, claims)| Some((spot, claims.rules.as_ref()?)));
            let of = |(spot, (plain, secure)): (&Arc<super::Spot>, &(crate::table::Rules, crate::table::Rules))| {
                let (host, named) = (spot.hostname.clone(), spot.specificity());
                ((host.clone(), named, plain.clone()), (host, named, secure.clone()))
            };
            let (plain, secure): (Vec<_>, Vec<_>) = all.map(of).unzip();
            (self.plain, self.secure) = (Arc::new(HttpRoutes::new(plain)), Arc::new(HttpRoutes::new(secure)));
        }
        let mut used = budget.used();
        for namespace in &touched.namespaces {
            match used.remove(namespace) {
                Some(used) => drop(self.expressions.insert(namespace.clone(), used)),
                None => drop(self.expressions.remove(namespace)),
            }
        }
    }

    /// The tables of the ports.
    pub(super) fn serve(&mut self) {
        (self.http, self.https) = (None, None);
        if self.members.is_empty() {
            return;
        }
        let port = |port, transport, listeners| {
            Some(Arc::new(PortTable::new("ingress".into(), port, transport, listeners, self.proxies.clone())))
        };
        let listener = |name: &str, hostname, tls, http: &Arc<HttpRoutes>| {
            Arc::new(Listener { name: name.into(), hostname, tls, http: http.clone(), streams: Arc::default() })
        };
        let plain = listener("http", None, TlsMode::None, &self.plain);
        let secure = self.secured.hosts().map(|(host, config)| {
            let name = host.as_ref().map_or_else(|| "https".to_owned(), ToString::to_string);
            listener(&name, host.clone(), TlsMode::Terminate(config.clone()), &self.secure)
        });
        let secure: Vec<_> = secure.collect();
        (self.http, self.https) = (
            port(HTTP, Transport::Http, vec![plain]),
            if self.secured.is_empty() { None } else { port(HTTPS, Transport::Tls, secure) },
        );
    }
}
