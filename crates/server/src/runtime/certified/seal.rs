//! The seal of session tokens: only a node with the cluster's secret has made a token that opens.
//!
//! ```text
//!  cluster (8 bytes) │ what the site has given │ proof (16 bytes)      all of it in hexadecimal digits
//! ```
//!
//! The proof is the beginning of an HMAC-SHA-256 of all that comes before, with the cluster's secret. So no
//! client makes up what a site has seen.

use crate::hexadecimal;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::sync::Arc;

const CLUSTER_BYTES: usize = 8;
const PROOF_BYTES: usize = 16;
/// The use of the secret here, so that a proof counts nowhere else.
const PURPOSE: &[u8] = b"ordo session token 1";

/// Why a token does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsealed {
    /// It is of another cluster.
    OtherCluster,
    /// It is no token, or damaged, or the secret was another one.
    Broken,
}

/// A cluster's seal.
pub struct TokenSeal {
    cluster: u64,
    secret: Arc<[u8]>,
}

impl TokenSeal {
    /// The seal of the cluster with this number and secret.
    pub fn new(cluster: u64, secret: Arc<[u8]>) -> TokenSeal {
        TokenSeal { cluster, secret }
    }

    /// The text of a token.
    pub fn close(&self, token: &[u8]) -> String {
        let mut bytes = self.cluster.to_be_bytes().to_vec();
        bytes.extend_from_slice(token);
        let proof = self.proof(&bytes).finalize().into_bytes();
        bytes.extend_from_slice(&proof[..PROOF_BYTES]);
        hexadecimal::encode(&bytes)
    }

    /// The token that a text has.
    ///
    /// # Errors
    /// No node of this cluster has closed it.
    pub fn open(&self, text: &[u8]) -> Result<Vec<u8>, Unsealed> {
        let bytes = hexadecimal::decode(text).ok_or(Unsealed::Broken)?;
        let length = bytes.len().checked_sub(PROOF_BYTES).ok_or(Unsealed::Broken)?;
        let (sealed, proof) = bytes.split_at(length);
        let (cluster, token) = sealed.split_at_checked(CLUSTER_BYTES).ok_or(Unsealed::Broken)?;
        if cluster != self.cluster.to_be_bytes() {
            return Err(Unsealed::OtherCluster);
        }
        let proven = self.proof(sealed).verify_truncated_left(proof);
        proven.map(|()| token.to_vec()).map_err(|_| Unsealed::Broken)
    }

    fn proof(&self, sealed: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret)
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.update(PURPOSE);
        mac.update(sealed);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(cluster: u64, secret: &str) -> TokenSeal {
        TokenSeal::new(cluster, secret.as_bytes().into())
    }

    #[test]
    fn a_token_opens_with_the_same_seal_and_unchanged() {
        let one = seal(7, "secret");
        let text = one.close(b"what a site has");
        assert_eq!(seal(7, "secret").open(text.as_bytes()), Ok(b"what a site has".to_vec()));
        assert_eq!(one.open(one.close(b"").as_bytes()), Ok(Vec::new()));
        assert_eq!(seal(8, "secret").open(text.as_bytes()), Err(Unsealed::OtherCluster));
        assert_eq!(seal(7, "other").open(text.as_bytes()), Err(Unsealed::Broken));
        for place in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[place] = if changed[place] == b'0' { b'1' } else { b'0' };
            assert!(one.open(&changed).is_err(), "digit {place}");
            assert!(one.open(&text.as_bytes()[..place]).is_err(), "cut at {place}");
        }
        for none in ["", "0", "token", &format!("{text}00")] {
            assert!(one.open(none.as_bytes()).is_err(), "{none}");
        }
    }
}
