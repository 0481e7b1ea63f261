//! Keys, as WireGuard's own tools write them: 32 bytes in Base64.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boringtun::x25519;

use crate::NetworkError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey(pub [u8; 32]);

impl std::fmt::Display for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("this is no key of WireGuard: 32 bytes in Base64")]
pub struct NoKey;

impl FromStr for PublicKey {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let bytes: [u8; 32] = STANDARD.decode(text).map_err(|_| NoKey)?.try_into().map_err(|_| NoKey)?;
        // Whoever takes such a key agrees with everybody on the same secret.
        if bytes == [0; 32] { Err(NoKey) } else { Ok(Self(bytes)) }
    }
}

/// Never shown, and overwritten in memory when it is dropped.
#[derive(Clone)]
pub struct PrivateKey(x25519::StaticSecret);

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl PrivateKey {
    pub fn generate() -> Self {
        Self(x25519::StaticSecret::from(rand::random::<[u8; 32]>()))
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(x25519::PublicKey::from(&self.0).to_bytes())
    }

    pub(crate) fn secret(&self) -> &x25519::StaticSecret {
        &self.0
    }

    /// The key in the file, or a new one that is there from now on. Only its owner may read it.
    pub fn load(path: &Path) -> Result<Self, NetworkError> {
        let failed = |problem: String| NetworkError::Key { path: path.to_owned(), problem };
        match fs::read_to_string(path) {
            Ok(text) => {
                let PublicKey(bytes) = text.trim().parse().map_err(|error: NoKey| failed(error.to_string()))?;
                Ok(Self(x25519::StaticSecret::from(bytes)))
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let key = Self::generate();
                key.store(path).map_err(|error| failed(format!("a new key cannot be written: {error}")))?;
                Ok(key)
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    fn store(&self, path: &Path) -> std::io::Result<()> {
        let draft = path.with_extension("new");
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        writeln!(file, "{}", STANDARD.encode(self.0.to_bytes()))?;
        file.sync_all()?;
        fs::rename(&draft, path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_kept_private() {
        let folder = std::env::temp_dir().join(format!("ferry-network-key-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("wireguard.key");
        let key = PrivateKey::load(&path).unwrap();
        assert_eq!(PrivateKey::load(&path).unwrap().public(), key.public());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(key.public().to_string().parse::<PublicKey>().unwrap(), key.public());
        fs::write(&path, "half a key\n").unwrap();
        let error = PrivateKey::load(&path).unwrap_err().to_string();
        assert!(error.contains("wireguard.key") && !error.contains("half"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "AAAA", &STANDARD.encode([0; 32]), &STANDARD.encode([1; 33]), "not base64 at all"] {
            assert!(text.parse::<PublicKey>().is_err(), "{text:?}");
        }
    }
}
