//! The side of the process that has the informers.

use std::io;

use ferry_client::endpoint_slices::Slice;
use ferry_client::{Change, Informer, Informers, ObjectKey};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::ResourceExt;
use tokio::io::{AsyncWrite, AsyncWriteExt, BufWriter};
use tokio::sync::watch;

use super::line::{Kind, Line};
use crate::reload::{self, Judge, Written};
use crate::{Config, DnsError};

/// Tells a [`super::Fed`] what it answers.
pub struct Feeder {
    services: Informer<Service>,
    slices: Informer<Slice>,
    namespaces: Informer<Namespace>,
    corefile: watch::Receiver<Option<Written>>,
}

impl Feeder {
    /// Also reports what is wrong with the cluster's Corefile, as a server in this process would.
    pub fn new(config: &Config, informers: &Informers, tasks: &Tasks) -> Result<Self, DnsError> {
        crate::zone(config)?;
        let (judge, corefile) = Judge::new(crate::usual(config), crate::surroundings(config, &config.listen))?;
        reload::follow(judge, informers.client().clone(), &tasks.child("corefile"));
        Ok(Self { services: informers.of(), slices: informers.projected(), namespaces: informers.of(), corefile })
    }

    /// With informers that somebody else fills, and no Corefile.
    pub fn of(services: Informer<Service>, slices: Informer<Slice>, namespaces: Informer<Namespace>) -> Self {
        Self { services, slices, namespaces, corefile: watch::channel(None).1 }
    }

    /// Tells everything, then every change; ends with an error when nobody listens any more.
    pub async fn feed(&self, listener: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut listener = BufWriter::new(listener);
        let mut services = self.services.subscribe();
        let mut slices = self.slices.subscribe();
        let mut namespaces = self.namespaces.subscribe();
        let mut corefile = self.corefile.clone();
        self.services.synced().await;
        self.slices.synced().await;
        self.namespaces.synced().await;
        // What came until now is listed below.
        while services.try_next().is_some() {}
        while slices.try_next().is_some() {}
        while namespaces.try_next().is_some() {}
        listener.write_all(&Line::All.bytes()?).await?;
        let written = corefile.borrow_and_update().clone().map(Line::Corefile);
        for line in written.into_iter().chain(self.lines()) {
            listener.write_all(&line.bytes()?).await?;
        }
        listener.write_all(&Line::Complete.bytes()?).await?;
        let mut follows = true;
        loop {
            listener.flush().await?;
            let line = tokio::select! {
                change = services.next() => told(Kind::Service, &change, Line::service),
                change = slices.next() => told(Kind::Slice, &change, Line::slice),
                change = namespaces.next() => told(Kind::Namespace, &change, namespace),
                changed = corefile.changed(), if follows => {
                    follows = changed.is_ok();
                    match corefile.borrow_and_update().clone() {
                        Some(written) => Line::Corefile(written),
                        None => continue,
                    }
                }
            };
            listener.write_all(&line.bytes()?).await?;
        }
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        let namespaces = self.namespaces.list().into_iter().map(|object| namespace(&object));
        let services = self.services.list().into_iter().map(|object| Line::service(&object));
        let slices = self.slices.list().into_iter().map(|object| Line::slice(&object));
        namespaces.chain(services).chain(slices)
    }
}

fn namespace(namespace: &Namespace) -> Line {
    Line::Namespace(namespace.name_any())
}

fn told<K: kube::Resource>(kind: Kind, change: &Change<K>, line: fn(&K) -> Line) -> Line {
    match change {
        Change::Added(object) | Change::Modified { new: object, .. } => line(object),
        Change::Deleted(object) => Line::gone(kind, &ObjectKey::of(&**object)),
    }
}
