//! What a new server is given by those that are there: the keys of the cluster's authorities, of service-account tokens and of
//! what is encrypted at rest.
//!
//! It lies in the cluster for as long as the token does, as a Secret that only the token's own user may read and that only the
//! key in the token opens: neither a reader of Secrets nor one of etcd's disks or backups learns a key from it.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use anyhow::{Context, Result, anyhow, ensure};
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use ferry_client::Api;
use ferry_server::pki::write_private;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::PostParams;
use serde::{Deserialize, Serialize};

use super::Record;
use super::flags::{self, Flags};
use super::token::{KEY_BYTES, ServerToken};
use crate::fleet::settings::Settings;

const NAMESPACE: &str = "kube-system";
const KIND: &str = "ferry.dev/server-handover";
const NONCE_BYTES: usize = 12;
/// In the folder of the cluster's keys.
pub const FILES: [&str; 8] = [
    "ca.crt",
    "ca.key",
    "service-account.key",
    "front-proxy/ca.crt",
    "front-proxy/ca.key",
    "etcd/ca.crt",
    "etcd/ca.key",
    "encryption.json",
];

/// What a witness gets of them: enough to be a member of etcd, and to know the cluster.
const FILES_OF_WITNESS: [&str; 3] = ["ca.crt", "etcd/ca.crt", "etcd/ca.key"];

/// What the machine is to be that they are handed over to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    Server,
    /// It votes on what is written and keeps it as it is: what is encrypted it cannot read.
    Witness,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Handover {
    /// The content of each file.
    files: BTreeMap<String, String>,
    pub settings: Settings,
    /// The flags of the API server, and the content of the files that they name.
    #[serde(default)]
    flags: Flags,
    #[serde(default)]
    flag_files: BTreeMap<String, String>,
    /// Where the members of etcd serve their clients.
    pub endpoints: Vec<String>,
}

fn name(id: &str) -> String {
    format!("ferry-server-{id}")
}

/// Binds what is sealed to its token.
fn context(id: &str) -> Aad<Vec<u8>> {
    Aad::from(format!("ferry server handover {id}").into_bytes())
}

fn cipher(key: &[u8; KEY_BYTES]) -> Result<RandomizedNonceKey> {
    RandomizedNonceKey::new(&AES_256_GCM, key).map_err(|_| anyhow!("the token's key cannot be used"))
}

impl Handover {
    /// Reads this server's own.
    pub fn collect(
        receiver: Receiver,
        data_dir: &Path,
        record: &Record,
        settings: Settings,
        endpoints: Vec<String>,
    ) -> Result<Self> {
        let folder = data_dir.join("pki");
        let read = |file: &str| {
            let path = folder.join(file);
            let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            Ok::<_, anyhow::Error>((file.to_owned(), text))
        };
        if receiver == Receiver::Witness {
            let files = FILES_OF_WITNESS.into_iter().map(read).collect::<Result<_>>()?;
            return Ok(Self { files, settings, flags: Flags::new(), flag_files: BTreeMap::new(), endpoints });
        }
        // With other keys than the rest it could not read their Secrets, nor they its own.
        let flags = record.flags.clone().unwrap_or_default();
        let encrypts = flags.contains_key(flags::ENCRYPTION);
        ensure!(
            encrypts || !ferry_server::encryption::is_given(&folder),
            "this server encrypts by --encryption-provider-config, and it is not noted which file that is; start it again first"
        );
        let flag_files = flags::read_files(&flags)?;
        let mut files = BTreeMap::new();
        for file in FILES {
            if file == "encryption.json" && encrypts && !folder.join(file).exists() {
                continue;
            }
            files.extend([read(file)?]);
        }
        Ok(Self { files, settings, flags, flag_files, endpoints })
    }

    /// What the machine is to be that this was made for: a witness gets no key of the cluster's own.
    pub fn receiver(&self) -> Receiver {
        if self.files.contains_key("ca.key") { Receiver::Server } else { Receiver::Witness }
    }

    pub fn ca(&self) -> &str {
        self.files.get("ca.crt").map(String::as_str).unwrap_or_default()
    }

    /// Puts them where `ferry run` looks for them, and returns the flags of the API server as they are here.
    pub fn unpack(&self, data_dir: &Path) -> Result<Flags> {
        let folder = data_dir.join("pki");
        // Opened, so that a folder of the right mode is there; a CA of its own is then replaced.
        for (file, text) in &self.files {
            let inside = Path::new(file).components().all(|part| matches!(part, Component::Normal(_)));
            ensure!(
                inside && FILES.contains(&file.as_str()),
                "the cluster hands over {file:?}, which is not known here"
            );
            let path = folder.join(file);
            let parent = path.parent().context("a file without a folder")?;
            std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
            std::fs::set_permissions(parent, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
            write_private(&path, text)?;
        }
        flags::unpack(&self.flags, &self.flag_files, data_dir)
    }

    fn seal(&self, token: &ServerToken) -> Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        let nonce = cipher(&token.key)?
            .seal_in_place_append_tag(context(&token.join.id), &mut text)
            .map_err(|_| anyhow!("the keys cannot be encrypted"))?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.extend(text);
        Ok(sealed)
    }

    fn open(sealed: &[u8], token: &ServerToken) -> Result<Self> {
        const WRONG: &str =
            "what the cluster hands over cannot be opened with this token: it is damaged, or of another token";
        ensure!(sealed.len() > NONCE_BYTES, WRONG);
        let (nonce, text) = sealed.split_at(NONCE_BYTES);
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| anyhow!(WRONG))?;
        let mut text = text.to_vec();
        let plain =
            cipher(&token.key)?.open_in_place(nonce, context(&token.join.id), &mut text).map_err(|_| anyhow!(WRONG))?;
        serde_json::from_slice(plain).context("the cluster's handover data is from another version of Ferry")
    }

    /// Lays it ready for the token's user. It goes when the token does, which owns it.
    pub async fn publish(&self, client: &Client, token: &ServerToken, owner: &Secret) -> Result<()> {
        let id = &token.join.id;
        let owner = OwnerReference {
            api_version: "v1".into(),
            kind: "Secret".into(),
            name: owner.metadata.name.clone().unwrap_or_default(),
            uid: owner.metadata.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        };
        let metadata = || ObjectMeta {
            name: Some(name(id)),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        let (secrets, roles, bindings): (Api<Secret>, Api<Role>, Api<RoleBinding>) = (
            Api::namespaced(client.clone(), NAMESPACE),
            Api::namespaced(client.clone(), NAMESPACE),
            Api::namespaced(client.clone(), NAMESPACE),
        );
        let parameters = PostParams::default();
        let secret = Secret {
            metadata: metadata(),
            type_: Some(KIND.to_owned()),
            data: Some([("handover".to_owned(), ByteString(self.seal(token)?))].into()),
            ..Secret::default()
        };
        secrets.create(&parameters, &secret).await.context("cannot prepare the keys for the new server")?;
        let role = Role {
            metadata: metadata(),
            rules: Some(vec![PolicyRule {
                api_groups: Some(vec![String::new()]),
                resources: Some(vec!["secrets".into()]),
                resource_names: Some(vec![name(id)]),
                verbs: vec!["get".into()],
                ..PolicyRule::default()
            }]),
        };
        roles.create(&parameters, &role).await.context("cannot let the new server read its keys")?;
        let group = "rbac.authorization.k8s.io".to_owned();
        let binding = RoleBinding {
            metadata: metadata(),
            role_ref: RoleRef { api_group: Some(group.clone()), kind: "Role".into(), name: name(id) },
            subjects: Some(vec![Subject {
                api_group: Some(group),
                kind: "User".into(),
                name: format!("system:bootstrap:{id}"),
                ..Subject::default()
            }]),
        };
        bindings.create(&parameters, &binding).await.context("cannot let the new server read its keys")?;
        Ok(())
    }

    /// Gets what was laid ready, as the token's user.
    pub async fn fetch(client: &Client, token: &ServerToken) -> Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let secret = secrets.get(&name(&token.join.id)).await.with_context(|| {
            format!(
                "the token {} gives no access to the cluster's keys: it is not a server token, or it has expired",
                token.join.id
            )
        })?;
        let sealed = secret.data.and_then(|mut data| data.remove("handover")).unwrap_or_default();
        Self::open(&sealed.0, token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::token::JoinToken;

    #[test]
    fn keys_are_handed_over_to_the_right_token_alone() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let pki = ferry_server::pki::Pki::open(&folder.path().join("pki")).unwrap();
        pki.signing_key().unwrap();
        pki.below("front-proxy").unwrap();
        pki.below("etcd").unwrap();
        let settings = Settings {
            cluster_cidr: "10.244.0.0/16".into(),
            service_cidr: "10.96.0.0/16".into(),
            cluster_domain: "cluster.local".into(),
            cluster_dns: "10.96.0.10".into(),
            network: None,
        };
        let keys = folder.path().join("pki");
        std::fs::write(keys.join("encryption.json"), "{}").unwrap();
        let mut record = Record {
            name: "s1".into(),
            address: [192, 0, 2, 1].into(),
            client_port: 2379,
            peer_port: 2380,
            initial_cluster: Vec::new(),
            joined: false,
            endpoints: vec!["https://192.0.2.1:2379".into()],
            settings: Some(settings.clone()),
            flags: None,
            restored: false,
            witness: false,
        };
        let collect = |record: &Record| {
            Handover::collect(Receiver::Server, folder.path(), record, settings.clone(), record.endpoints.clone())
        };
        // Keys that the administrator gave are elsewhere: what is here is not what Secrets are encrypted with.
        std::fs::write(keys.join("encryption.given"), "").unwrap();
        assert!(collect(&record).is_err_and(|why| why.to_string().contains("--encryption-provider-config")));
        let given = folder.path().join("given.yaml");
        std::fs::write(&given, "kind: EncryptionConfiguration").unwrap();
        record.flags = Some([(flags::ENCRYPTION.to_owned(), vec![given.display().to_string()])].into());
        let handover = collect(&record).unwrap();
        let token = ServerToken::new(JoinToken::new(pki.ca_certificate()).unwrap()).unwrap();
        let sealed = handover.seal(&token).unwrap();
        let holds = |text: &str| sealed.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!holds("PRIVATE KEY") && !holds("10.244"));
        let opened = Handover::open(&sealed, &token).unwrap();
        let flags = opened.unpack(other.path()).unwrap();
        let copied = std::fs::read_to_string(&flags[flags::ENCRYPTION][0]).unwrap();
        assert!(copied == "kind: EncryptionConfiguration" && !holds("EncryptionConfiguration"));
        let copy = ferry_server::pki::Pki::open(&other.path().join("pki")).unwrap();
        assert_eq!(copy.ca_certificate(), pki.ca_certificate());
        assert_eq!(copy.signing_key().unwrap(), pki.signing_key().unwrap());
        assert_eq!(copy.below("etcd").unwrap().ca_certificate(), pki.below("etcd").unwrap().ca_certificate());

        // A witness learns no key that opens anything of the cluster but etcd.
        let witness =
            Handover::collect(Receiver::Witness, folder.path(), &record, settings.clone(), Vec::new()).unwrap();
        assert_eq!([witness.receiver(), handover.receiver()], [Receiver::Witness, Receiver::Server]);
        assert_eq!(witness.files.keys().map(String::as_str).collect::<Vec<_>>(), FILES_OF_WITNESS);

        let stranger = ServerToken::new(token.join.clone()).unwrap();
        assert!(Handover::open(&sealed, &stranger).is_err());
        let renamed = ServerToken { join: JoinToken { id: "other1".into(), ..token.join.clone() }, key: token.key };
        assert!(Handover::open(&sealed, &renamed).is_err());
        let mut damaged = sealed.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(Handover::open(&damaged, &token).is_err() && Handover::open(&[], &token).is_err());
    }
}
