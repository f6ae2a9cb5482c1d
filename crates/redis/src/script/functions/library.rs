//! A library as its record keeps it, and as its first line names it.

use super::super::convert::line;
use super::super::run::{Digest, Part, Program};
use super::super::shebang::{ScriptFlags, first_line};
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{Blob, Reply};

/// The first byte of a record: one of another form is not taken for this one.
const RECORD_VERSION: u8 = 1;

/// A function, as it was registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registered {
    pub name: Blob,
    pub description: Option<Blob>,
    pub flags: ScriptFlags,
}

/// A library: its code with what that registers.
///
/// ```text
/// version (1 byte)  digest of the code (40 bytes)  number of functions (varint)
///     of each: name (bytes)  flags (1 byte)  has a description (1 byte)  description (bytes, if it has one)
/// code (all that follows)
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Library {
    /// The functions, in the order of their names.
    pub functions: Vec<Registered>,
    pub digest: Digest,
    record: Blob,
    code_at: usize,
}

impl Library {
    /// Makes the library of a code.
    pub fn new(digest: Digest, code: &[u8], mut functions: Vec<Registered>) -> Library {
        functions.sort_by(|a, b| a.name.as_bytes().cmp(&b.name));
        let mut record = vec![RECORD_VERSION];
        record.extend_from_slice(&digest);
        put_varint(&mut record, functions.len() as u64);
        for function in &functions {
            put_bytes(&mut record, &function.name);
            record.push(function.flags.to_bits());
            record.push(u8::from(function.description.is_some()));
            if let Some(description) = &function.description {
                put_bytes(&mut record, description);
            }
        }
        let code_at = record.len();
        record.extend_from_slice(code);
        Library { functions, digest, record: Blob::from(record), code_at }
    }

    /// Reads a record. `None` if it has another form.
    pub fn from_record(record: &Blob) -> Option<Library> {
        let mut reader = Reader::new(record);
        if reader.u8()? != RECORD_VERSION {
            return None;
        }
        let digest: Digest = reader.take(size_of::<Digest>())?.try_into().ok()?;
        let mut functions = Vec::new();
        for _ in 0..reader.varint()? {
            let name = reader.blob()?;
            let flags = ScriptFlags::from_bits(reader.u8()?);
            let description = match reader.u8()? {
                0 => None,
                _ => Some(reader.blob()?),
            };
            functions.push(Registered { name, description, flags });
        }
        Some(Library {
            functions,
            digest,
            record: record.clone(),
            code_at: record.len() - reader.rest().len(),
        })
    }

    pub fn record(&self) -> &Blob {
        &self.record
    }

    pub fn code(&self) -> &[u8] {
        self.record.get(self.code_at..).unwrap_or_default()
    }

    /// The function of that name, whatever its case.
    pub fn function(&self, name: &[u8]) -> Option<&Registered> {
        self.functions.iter().find(|function| function.name.eq_ignore_ascii_case(name))
    }

    /// What calls a function of it.
    pub fn calling(&self, function: &Registered) -> Program {
        Program {
            part: Part::Function(function.name.clone()),
            digest: self.digest,
            text: self.record.clone(),
            code_at: self.code_at,
        }
    }
}

/// Whether libraries and functions may have that name.
fn is_name(name: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    !name.is_empty() && name.iter().all(fits)
}

/// The name that a code gives its library in its first line. The error is the reply.
pub(super) fn name_of(code: &[u8]) -> Result<Blob, Reply> {
    let error = |text: &'static str| Err(Reply::error(text));
    if !code.starts_with(b"#!") {
        return error("ERR Missing library metadata");
    }
    let words = first_line(code).and_then(|(words, _)| words).unwrap_or_default();
    let Some((engine, options)) = words.split_first() else {
        return error("ERR Invalid library metadata");
    };
    let mut name = None;
    for option in options {
        let named =
            option.split_at_checked(b"name=".len()).filter(|(key, _)| key.eq_ignore_ascii_case(b"name="));
        match named {
            Some(_) if name.is_some() => {
                return error("ERR Invalid metadata value, name argument was given multiple times");
            }
            Some((_, value)) => name = Some(Blob::new(value)),
            None => {
                return Err(Reply::error_owned(format!(
                    "ERR Invalid metadata value given: {}",
                    line(option)
                )));
            }
        }
    }
    let Some(name) = name else {
        return error("ERR Library name was not given");
    };
    if !is_name(&name) {
        return error(
            "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least \
             one character long",
        );
    }
    let engine = engine.get(b"#!".len()..).unwrap_or_default();
    if !engine.eq_ignore_ascii_case(b"lua") {
        return Err(Reply::error_owned(format!("ERR Engine '{}' not found", line(engine))));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_made_and_not_if_it_is_cut() {
        let function = |name: &str, description: Option<&str>, flags| Registered {
            name: Blob::from(name),
            description: description.map(Blob::from),
            flags,
        };
        let functions = vec![
            function("b", None, ScriptFlags::NO_WRITES),
            function("A", Some("says\0what"), ScriptFlags::default()),
        ];
        let library = Library::new([b'0'; 40], b"code", functions);
        assert_eq!(library.functions[0].name.as_bytes(), b"A");
        assert_eq!(library.code(), b"code");
        let record = library.record().clone();
        assert_eq!(Library::from_record(&record).as_ref(), Some(&library));
        for len in 0..record.len() - b"code".len() {
            assert_eq!(Library::from_record(&Blob::new(&record[..len])), None);
        }
        let mut other = record.to_vec();
        other[0] += 1;
        assert_eq!(Library::from_record(&Blob::from(other)), None);
    }
}
