//! The place up to which a consumer has the changes.

use anyhow::{Result, bail};
use std::fmt;
use std::str::FromStr;

/// A place in the changes: `EPOCH-PLACE-DIGEST`, as in `80112-3-9ab10c3be04fd2a7`.
///
/// The digest is the order's chained digest at the epoch's end. It tells a database that has another past
/// (because it was restored, say) from the one that the consumer knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The epoch.
    pub epoch: u64,
    /// How many of the epoch's transactions with changes the consumer has; 0 for all of them.
    pub place: u64,
    /// The order's chained digest at the epoch's end.
    pub digest: u64,
}

impl Cursor {
    /// The last epoch at whose end an execution may begin that is to tell what follows the cursor.
    pub fn checkpoint_max(&self) -> u64 {
        match self.place {
            0 => self.epoch,
            // Some of the epoch's transactions are to be told.
            _ => self.epoch.saturating_sub(1),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:016x}", self.epoch, self.place, self.digest)
    }
}

impl FromStr for Cursor {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Cursor> {
        let parsed = || {
            let [epoch, place, digest] = text.split('-').collect::<Vec<_>>().try_into().ok()?;
            let digest = u64::from_str_radix(digest, 16).ok().filter(|_| digest.len() == 16)?;
            Some(Cursor { epoch: epoch.parse().ok()?, place: place.parse().ok()?, digest })
        };
        match parsed() {
            Some(cursor) => Ok(cursor),
            None => bail!(
                "'{text}' is no place in the changes: give 'start', 'now', or the \"cursor\" of a line that \
                 'ordo export' wrote, such as 80112-3-9ab10c3be04fd2a7"
            ),
        }
    }
}

/// Where the changes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// With all keys that there are.
    Start,
    /// With what is changed from now on.
    Now,
    /// Behind a cursor.
    Behind(Cursor),
}

impl FromStr for Origin {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Origin> {
        match text {
            "start" => Ok(Origin::Start),
            "now" => Ok(Origin::Now),
            cursor => cursor.parse().map(Origin::Behind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written_and_nothing_else_is() {
        let cursor = Cursor { epoch: 80112, place: 3, digest: 0x9ab1_0c3b_e04f_d2a7 };
        assert_eq!(cursor.to_string(), "80112-3-9ab10c3be04fd2a7");
        assert_eq!(cursor.to_string().parse::<Cursor>().expect("a cursor"), cursor);
        assert_eq!("start".parse::<Origin>().expect("an origin"), Origin::Start);
        assert_eq!("now".parse::<Origin>().expect("an origin"), Origin::Now);
        for text in ["", "1", "1-2", "1-2-3", "1-2-9ab10c3be04fd2a7-4", "x-2-9ab10c3be04fd2a7", "begin"] {
            let error = text.parse::<Origin>().expect_err(text).to_string();
            assert!(error.contains("80112-3-"), "{error}");
        }
    }
}
