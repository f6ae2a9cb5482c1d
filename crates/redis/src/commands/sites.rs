//! ORDO.SESSION and ORDO.WAIT: a client goes on at another site, and waits for sites of other regions.
//!
//! Where sites commit alone, the node does what these commands say when it meets their procedures, whose
//! names are here. A procedure itself runs only where there are no sites, and says so.

use super::options;
use crate::errors;
use txn::{Args, Blob, Outcome, Reply, Tx};

/// The commands.
pub const NAMES: [&str; 2] = ["ordo.session", "ordo.wait"];
/// The procedure of ORDO.SESSION.
pub const SESSION: &str = "redis.ordo.session";
/// The procedure of ORDO.WAIT.
pub const WAIT: &str = "redis.ordo.wait";

/// The reply of the commands where no sites commit alone.
pub const NEEDS_SITES: Reply = Reply::error(
    "ERR only where the cluster.toml says protocol = \"pcsi\" do sites commit alone, and not within a block \
     or another command: elsewhere each client sees what any client was told",
);

/// Why ORDO.SESSION and ORDO.WAIT are refused where validators certify transactions.
pub const NO_SITES: &str = "only sites of protocol = \"pcsi\" commit alone: here each client sees what any \
                            client was told";

/// ORDO.SESSION [token]: the token, if there is one.
///
/// # Errors
/// The reply to words that make no sense.
pub fn session(args: &Args) -> Result<Option<&Blob>, Reply> {
    match &args[..] {
        [] => Ok(None),
        [token] => Ok(Some(token)),
        _ => Err(errors::SYNTAX),
    }
}

/// The demand of an ORDO.WAIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Sites of this region; of each region if there is none.
    pub region: Option<String>,
    /// At least this number of them.
    pub sites_min: usize,
    /// It waits no longer; 0 stands for the longest time that a node lets it wait.
    pub timeout_ms: u64,
}

const NO_NUMBER: Reply = Reply::error("ERR the number of sites is out of range, must be from 1 to 64");

/// ORDO.WAIT REGION name sites milliseconds, or ORDO.WAIT REGIONS sites milliseconds
///
/// # Errors
/// The reply to words that make no sense.
pub fn wait(args: &Args) -> Result<Wait, Reply> {
    let (region, sites, timeout) = match &args[..] {
        [word, name, sites, timeout] if word.eq_ignore_ascii_case(b"region") => {
            (Some(String::from_utf8_lossy(name).into_owned()), sites, timeout)
        }
        [word, sites, timeout] if word.eq_ignore_ascii_case(b"regions") => (None, sites, timeout),
        _ => return Err(errors::SYNTAX),
    };
    let sites_min = match options::integer(sites)? {
        sites @ 1..=64 => sites as usize,
        _ => return Err(NO_NUMBER),
    };
    Ok(Wait { region, sites_min, timeout_ms: options::timeout_ms(timeout)? })
}

/// ORDO.SESSION and ORDO.WAIT, where they are not served.
pub async fn without_sites(_: &mut Tx, _: &[Blob]) -> Outcome {
    Ok(NEEDS_SITES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args(line.split_whitespace().map(Blob::from).collect())
    }

    #[test]
    fn a_wait_names_a_region_or_means_each_one() {
        let wanted = |region: Option<&str>, sites_min, timeout_ms| {
            Ok(Wait { region: region.map(str::to_owned), sites_min, timeout_ms })
        };
        assert_eq!(wait(&args("REGION east 2 500")), wanted(Some("east"), 2, 500));
        assert_eq!(wait(&args("region east 1 0")), wanted(Some("east"), 1, 0));
        assert_eq!(wait(&args("Regions 1 9")), wanted(None, 1, 9));
        for line in ["", "REGION", "REGION east 1", "REGIONS east 1 0", "REGIONS 1", "NODES 1 0", "1 0"] {
            assert!(wait(&args(line)).is_err(), "{line}");
        }
        for line in ["REGIONS 0 0", "REGIONS 65 0", "REGIONS -1 0", "REGIONS 1 -1", "REGIONS one 0"] {
            assert!(wait(&args(line)).is_err(), "{line}");
        }
    }
}
