//! What FUNCTION DUMP replies: libraries as Redis's snapshot files have them.
//!
//! ```text
//! of each: 245 (1 byte)  code (a string with its length)        version  CRC64        as behind DUMP's values
//! ```
//!
//! RESTORE also reads the form that 7.0's release candidates wrote: 246, name, engine, whether it has a
//! description (a number), description, and code, without a first line.

use crate::commands::dump::{Strings, checked, put_string, with_footer};
use crate::errors;
use txn::{Blob, Reply};

const LIBRARY: u8 = 245;
const LIBRARY_OF_CANDIDATES: u8 = 246;

/// The payload of libraries with this code.
pub(super) fn write<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for code in codes {
        bytes.push(LIBRARY);
        put_string(&mut bytes, code);
    }
    with_footer(bytes)
}

/// The codes in a payload, one by one: the error is the reply for what follows the last good one.
pub(super) struct Codes<'a>(Strings<'a>);

impl<'a> Codes<'a> {
    /// Checks the footer.
    pub fn of(payload: &'a [u8]) -> Result<Codes<'a>, Reply> {
        let body = checked(payload).ok_or(errors::RESTORE_FOOTER)?;
        Ok(Codes(Strings::new(body)))
    }

    fn of_candidates(&mut self) -> Result<Blob, Reply> {
        let failed = |what: &str| Reply::error_owned(format!("ERR Failed loading {what}"));
        let name = self.0.string().ok_or_else(|| failed("library name"))?;
        let engine = self.0.string().ok_or_else(|| failed("engine name"))?;
        let has_description = self.0.number();
        if has_description.ok_or_else(|| failed("library description indicator"))? != 0 {
            self.0.string().ok_or_else(|| failed("library description"))?;
        }
        let code = self.0.string().ok_or_else(|| failed("library blob"))?;
        let mut all = b"#!".to_vec();
        for part in [&engine[..], b" name=", &name, b"\n", &code] {
            all.extend_from_slice(part);
        }
        Ok(Blob::from(all))
    }
}

impl Iterator for Codes<'_> {
    type Item = Result<Blob, Reply>;

    fn next(&mut self) -> Option<Result<Blob, Reply>> {
        if self.0.is_empty() {
            return None;
        }
        Some(match self.0.kind() {
            Some(LIBRARY) => self.0.string().ok_or(Reply::error("ERR Failed loading library payload")),
            Some(LIBRARY_OF_CANDIDATES) => self.of_candidates(),
            _ => Err(Reply::error("ERR given type is not a function")),
        })
    }
}
