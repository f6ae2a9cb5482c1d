//! ORDO.BEGIN, ORDO.COMMIT and ORDO.ROLLBACK: a transaction that its client holds open.
//!
//! Where transactions are certified, the node does what these commands say when it meets their procedures,
//! whose names are here. A procedure itself runs only where there is no such transaction, and says so.

use txn::{Args, Blob, Outcome, Reply, Tx};

/// The commands.
pub const NAMES: [&str; 3] = ["ordo.begin", "ordo.commit", "ordo.rollback"];
/// The procedure that begins a transaction.
pub const BEGIN: &str = "redis.ordo.begin";
/// The procedure that commits it.
pub const COMMIT: &str = "redis.ordo.commit";
/// The procedure that ends it without effect.
pub const ROLLBACK: &str = "redis.ordo.rollback";

/// What the commands reply where transactions are ordered.
pub const NEEDS_CERTIFICATION: Reply = Reply::error(
    "ERR a connection holds a transaction open only where the cluster.toml says protocol = \"hierarchy\" or \
     \"pcsi\", and not within a block or another command: use MULTI and EXEC, or a script",
);

/// Whether the arguments of ORDO.BEGIN ask for a transaction that only reads; `None` if they make no sense.
pub fn begins_read_only(args: &Args) -> Option<bool> {
    match &args[..] {
        [] => Some(false),
        [word] if word.eq_ignore_ascii_case(b"readonly") => Some(true),
        _ => None,
    }
}

/// ORDO.BEGIN [READONLY], ORDO.COMMIT, ORDO.ROLLBACK
pub async fn without_certification(_: &mut Tx, _: &[Blob]) -> Outcome {
    Ok(NEEDS_CERTIFICATION)
}
