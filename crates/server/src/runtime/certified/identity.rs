//! Whose the directory of a site is. A small file in it tells that from the first start on.
//!
//! A site that came back as another node, or with other validators, would break what it had promised to the
//! others.

use super::StartError;
use crate::replace::replace_file;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// The file's name.
const FILE: &str = "hierarchy.json";

/// Which site of which cluster it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiteIdentity {
    /// The node's name.
    pub node: String,
    /// The cluster's name.
    pub cluster: String,
    /// What tells apart clusters of another protocol, or of other nodes, validators, hosts, control or
    /// partitions ([`crate::cluster::ClusterConfig::certified_digest`]). The file says `hierarchy` since
    /// there was one such protocol.
    #[serde(rename = "hierarchy")]
    pub digest: u64,
}

impl SiteIdentity {
    /// Checks that a site's directory is that of this site. The first start says so in the directory.
    pub fn claim(&self, dir: &Path) -> Result<(), StartError> {
        let path = dir.join(FILE);
        let failed = |cause: io::Error| {
            let text = format!("{}: {cause}. Check the disk, and who may read the file", path.display());
            StartError::Ended(text.into())
        };
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let text = serde_json::to_vec(self).map_err(|error| failed(error.into()))?;
                return replace_file(&path, &text).map_err(failed);
            }
            Err(cause) => return Err(failed(cause)),
        };
        let found: SiteIdentity = serde_json::from_slice(&text).map_err(|error| failed(error.into()))?;
        if found == *self {
            return Ok(());
        }
        let (dir, SiteIdentity { node, cluster, .. }) = (dir.display(), &found);
        let text = match found.node == self.node && found.cluster == self.cluster {
            true => format!(
                "{dir} was made with other nodes, partitions, validators, protocol or control than the \
                 cluster's description has now, and these stay as they were when the cluster was founded: nothing was \
                 changed. Start the node with the description that it had. (Sites have all partitions in a \
                 description from before there was \"replicas\": list them in each [[site]])"
            ),
            false => format!(
                "{dir} is of node '{node}' of cluster '{cluster}', and not of '{}' of '{}': nothing was \
                 changed. Give each node its own directory (--dir)",
                self.node, self.cluster
            ),
        };
        Err(StartError::Ended(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_stays_that_of_its_first_site() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = SiteIdentity { node: "n1".to_owned(), cluster: "shop".to_owned(), digest: 7 };
        let claim = |identity: &SiteIdentity| identity.claim(dir.path()).map_err(|error| error.to_string());
        assert_eq!((claim(&first), claim(&first)), (Ok(()), Ok(())));
        for (other, text) in [
            (SiteIdentity { node: "n2".to_owned(), ..first.clone() }, "is of node 'n1' of cluster 'shop'"),
            (SiteIdentity { cluster: "mall".to_owned(), ..first.clone() }, "and not of 'n1' of 'mall'"),
            (SiteIdentity { digest: 8, ..first.clone() }, "with other nodes"),
        ] {
            let error = claim(&other).expect_err("it is another one");
            assert!(error.contains(text), "{error}");
        }
        assert_eq!(claim(&first), Ok(()));
    }
}
