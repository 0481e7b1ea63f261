//! Which member of the cluster's etcd this machine is, kept in the data folder.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use ferry_server::pki::{Leaf, Pki, Use, write_private};
use ferry_store::etcd::Members;
use ferry_store::{EtcdOptions, EtcdTls};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::flags::Flags;
use crate::fleet::settings::Settings;
use crate::folders::read_if_there;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// The member's name, which is the node's.
    pub name: String,
    /// Where the other members reach it.
    pub address: IpAddr,
    pub client_port: u16,
    pub peer_port: u16,
    /// `name=https://address:port` of each member when this one came, itself included.
    pub initial_cluster: Vec<String>,
    /// Whether there was a cluster to come to.
    pub joined: bool,
    /// Where the members serve their clients, as far as is known.
    pub endpoints: Vec<String>,
    /// What the first server was told; the same on all of them.
    pub settings: Option<Settings>,
    /// The flags of its API server: those of its own command line, or of the server that let it join. None where that was
    /// before they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<Flags>,
    /// Whether the flags are those of the server that a backup or a lost cluster had, except for what is given here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restored: bool,
    /// Whether it is a member without a server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub witness: bool,
}

/// A `host:port` in a URL.
pub fn url(address: IpAddr, port: u16) -> String {
    format!("https://{}", std::net::SocketAddr::new(address, port))
}

pub fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("server.json")
}

/// Where the member keeps its data.
pub fn data(data_dir: &Path) -> PathBuf {
    data_dir.join("etcd")
}

/// The member's database. Others may read it while the member does not run.
pub fn database(data_dir: &Path) -> PathBuf {
    data(data_dir).join("member/snap/db")
}

/// The authority of the members and of those who may ask them. It is not the cluster's: whoever has a certificate of that
/// one could read everything.
pub fn authority(data_dir: &Path) -> Result<Arc<Pki>> {
    // A witness has this one alone.
    Ok(Arc::new(Pki::open(&data_dir.join("pki/etcd"))?))
}

impl Record {
    pub fn read(data_dir: &Path) -> Result<Option<Self>> {
        let path = path(data_dir);
        let Some(text) = read_if_there(&path)? else { return Ok(None) };
        serde_json::from_slice(&text).map(Some).with_context(|| format!("{} is damaged", path.display()))
    }

    /// As `read`, for commands that make sense where there is a member alone.
    pub fn must_read(data_dir: &Path) -> Result<Self> {
        Self::read(data_dir)?.with_context(|| {
            format!(
                "{} is not the folder of a server with an etcd member; the first one is made with `ferry up --cluster-init`",
                data_dir.display()
            )
        })
    }

    /// As `must_read`, for what needs the cluster's keys.
    pub fn of_server(data_dir: &Path) -> Result<Self> {
        let record = Self::must_read(data_dir)?;
        ensure!(
            !record.witness,
            "this machine is a witness, which has none of the cluster's keys; do this on a server"
        );
        Ok(record)
    }

    pub fn write(&self, data_dir: &Path) -> Result<()> {
        write_private(&path(data_dir), &serde_json::to_string_pretty(self)?)
    }

    /// The flags of its API server, with what is given on the command line: all of it on a server that has none from elsewhere.
    pub fn flags_with(&self, given: Flags) -> Flags {
        match (&self.flags, self.joined, self.restored) {
            (Some(known), true, _) => known.clone(),
            (Some(known), false, true) => {
                let mut all = known.clone();
                all.extend(given);
                all
            }
            _ => given,
        }
    }

    pub fn peer_url(&self) -> String {
        url(self.address, self.peer_port)
    }

    pub fn client_url(&self) -> String {
        url(self.address, self.client_port)
    }

    pub fn leaf(&self) -> Leaf {
        let addresses = vec![self.address, IpAddr::from([127, 0, 0, 1])];
        let names = vec!["localhost".to_owned(), self.name.clone()];
        Leaf {
            name: "member".into(),
            common_name: self.name.clone(),
            organizations: Vec::new(),
            usage: Use::Member { names, addresses },
        }
    }

    /// How this server asks etcd: its own member first, any other when that is away.
    pub fn options(&self, data_dir: &Path) -> Result<EtcdOptions> {
        let mut endpoints = vec![self.client_url()];
        endpoints.extend(self.endpoints.iter().filter(|other| **other != self.client_url()).cloned());
        Ok(EtcdOptions { tls: Some(client_tls(data_dir)?), ..EtcdOptions::new(endpoints) })
    }

    /// Asks the other members, for what concerns this one.
    pub fn others(&self, data_dir: &Path) -> Result<Members> {
        let endpoints: Vec<String> =
            self.endpoints.iter().filter(|other| **other != self.client_url()).cloned().collect();
        ensure!(!endpoints.is_empty(), "no other server of the cluster is known");
        Ok(Members::new(&EtcdOptions { tls: Some(client_tls(data_dir)?), ..EtcdOptions::new(endpoints) })?)
    }
}

/// What is shown to etcd.
pub fn client_tls(data_dir: &Path) -> Result<EtcdTls> {
    let authority = authority(data_dir)?;
    let leaf = Leaf {
        name: "client".into(),
        common_name: "ferry-server".into(),
        organizations: Vec::new(),
        usage: Use::Client,
    };
    let pair = authority.leaf(&leaf, Timestamp::now())?;
    Ok(EtcdTls {
        certificate_authority: authority.ca_certificate().as_bytes().to_vec(),
        identity: Some((pair.certificate.into_bytes(), pair.key.into_bytes())),
        server_name: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(all: &[(&str, &str)]) -> Flags {
        all.iter().map(|(flag, value)| ((*flag).to_owned(), vec![(*value).to_owned()])).collect()
    }

    #[test]
    fn flags_from_elsewhere_stay_until_others_are_given() {
        let text = r#"{"name": "s1", "address": "192.0.2.1", "clientPort": 1, "peerPort": 2, "initialCluster": [],
            "joined": true, "endpoints": [], "settings": null}"#;
        let mut record: Record = serde_json::from_str(text).unwrap();
        let given = || flags(&[("audit-log-maxage", "3")]);
        assert_eq!(record.flags, None);
        // It joined before flags were recorded: those of its unit are the cluster's.
        assert_eq!(record.flags_with(given()), given());
        record.flags = Some(Flags::new());
        let kept: Record = serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(kept, record, "none is not the same as not known");
        record.flags = Some(flags(&[("audit-log-maxage", "1"), ("audit-policy-file", "/a")]));
        assert_eq!(record.flags_with(given()), record.flags.clone().unwrap());
        (record.joined, record.restored) = (false, true);
        assert_eq!(record.flags_with(Flags::new()), record.flags.clone().unwrap());
        assert_eq!(record.flags_with(given()), flags(&[("audit-log-maxage", "3"), ("audit-policy-file", "/a")]));
        record.restored = false;
        assert_eq!(record.flags_with(given()), given());
    }
}
