//! A detached JWS with HMAC-SHA256 over the cluster's kubeconfig, as joining nodes verify it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

const BLOCK: usize = 64;

/// RFC 2104.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; BLOCK];
    if key.len() > BLOCK {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let padded = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

/// `header..signature`: the content between is what was signed and is not repeated.
pub(super) fn detached(content: &str, id: &str, secret: &str) -> String {
    let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":{id:?}}}"#));
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    format!("{header}..{}", URL_SAFE_NO_PAD.encode(hmac(secret.as_bytes(), signed.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmac_is_the_known_one() {
        // RFC 4231, test cases 2 and 6.
        let hex = |bytes: Vec<u8>| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let made = hmac(b"Jefe", b"what do ya want for nothing?");
        assert_eq!(hex(made), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let made = hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(made), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
        assert_eq!(detached("x", "abcdef", "s").split('.').count(), 3);
    }
}
