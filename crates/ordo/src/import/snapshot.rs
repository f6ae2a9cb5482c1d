//! What a snapshot has, and what of it is imported.

use super::{Plan, now_ms, refuse};
use anyhow::{Context, Result, bail};
use redis_surface::rdb::{RdbItem, RdbKey, RdbReader, quoted, value};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek};
use std::path::Path;
use txn::Blob;

/// Counts what was read.
#[derive(Debug, Default)]
pub struct Tally {
    /// Keys in each database.
    databases: BTreeMap<u64, u64>,
    /// Keys that were imported, or would be.
    pub keys: u64,
    /// Those of them that expire some time.
    pub expiring: u64,
    /// Keys that had expired, and keys of hashes whose last field had.
    pub expired: u64,
    /// Keys of other databases than the one that is imported.
    pub elsewhere: u64,
    pub libraries: u64,
    /// Values of modules, and an example.
    pub modules: u64,
    pub module: Option<String>,
    /// Fields of hashes that expire by themselves, and a key that has some.
    pub expiring_fields: u64,
    pub expiring_field: Option<String>,
}

impl Tally {
    /// Counts an item. Gives what of it is imported.
    pub fn take(&mut self, item: RdbItem, database: Option<u64>, now_ms: u64) -> Option<Wanted> {
        let is_elsewhere = |other: u64| database.is_some_and(|database| database != other);
        match item {
            RdbItem::End => None,
            RdbItem::Library(code) => {
                self.libraries += 1;
                Some(Wanted::Library(code))
            }
            RdbItem::Module { database: of, key, module } => {
                *self.databases.entry(of).or_default() += 1;
                if is_elsewhere(of) {
                    self.elsewhere += 1;
                } else {
                    self.modules += 1;
                    self.module.get_or_insert_with(|| format!("{}, of {module}", quoted(&key)));
                }
                None
            }
            RdbItem::Key(key) => {
                *self.databases.entry(key.database).or_default() += 1;
                let has_expired = key.expires_at_ms.is_some_and(|at_ms| at_ms <= now_ms);
                if is_elsewhere(key.database) {
                    self.elsewhere += 1;
                    return None;
                }
                if has_expired || key.payload.is_empty() {
                    self.expired += 1;
                    return None;
                }
                if key.expiring_fields > 0 {
                    self.expiring_fields += key.expiring_fields;
                    self.expiring_field.get_or_insert_with(|| quoted(&key.key));
                }
                self.keys += 1;
                self.expiring += u64::from(key.expires_at_ms.is_some());
                Some(Wanted::Key(key))
            }
        }
    }

    /// Whether all can be imported, or what cannot may be left.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        self.database(plan)?;
        refuse(self, plan)
    }

    /// The database that is imported.
    pub fn database(&self, plan: &Plan) -> Result<u64> {
        one_database(&self.databases, plan)
    }
}

/// The database that is imported, of those that have keys.
pub fn one_database(databases: &BTreeMap<u64, u64>, plan: &Plan) -> Result<u64> {
    let mut all = databases.iter();
    match (plan.import.database, all.next(), all.next()) {
        (Some(database), Some(_), _) if !databases.contains_key(&database) => {
            bail!("the source has no key in database {database}: --database names one that has")
        }
        (Some(database), ..) => Ok(database),
        (None, Some((&database, _)), None) => Ok(database),
        (None, None, _) => Ok(0),
        _ => {
            let shown = databases.iter().map(|(database, keys)| format!("{keys} in database {database}"));
            bail!(
                "the source has keys in several databases ({}), and Ordo has one: --database says which one \
                 is imported; the others need an Ordo each",
                shown.collect::<Vec<_>>().join(", ")
            )
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} keys", self.keys)?;
        for (count, what) in [
            (self.libraries, "libraries of functions"),
            (self.expired, "keys that had expired"),
            (self.elsewhere, "keys of other databases"),
            (self.modules, "values of modules"),
            (self.expiring_fields, "fields that expire by themselves"),
        ] {
            if count > 0 {
                write!(out, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

/// What is imported of a snapshot.
pub enum Wanted {
    Key(RdbKey),
    Library(Blob),
}

/// A snapshot file. All passes read the one that was opened, also if another one gets its name meanwhile.
pub struct SnapshotFile<'a> {
    pub path: &'a Path,
    file: File,
}

impl<'a> SnapshotFile<'a> {
    pub fn open(path: &'a Path) -> Result<SnapshotFile<'a>> {
        let file = File::open(path).with_context(|| format!("could not open {}", path.display()))?;
        Ok(SnapshotFile { path, file })
    }

    pub fn len_bytes(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Reads it from its start. There is one reader at a time.
    pub fn reader(&self) -> Result<RdbReader<BufReader<&File>>> {
        let mut file = &self.file;
        file.rewind().with_context(|| format!("could not read {}", self.path.display()))?;
        let input = BufReader::with_capacity(1 << 20, file);
        RdbReader::new(input, now_ms()).with_context(|| self.path.display().to_string())
    }
}

/// Reads a file to its end, and counts.
pub fn examine(file: &SnapshotFile<'_>, plan: &Plan) -> Result<Tally> {
    let path = file.path;
    let mut reader = file.reader()?;
    let now_ms = now_ms();
    let mut tally = Tally::default();
    loop {
        match reader.next().with_context(|| path.display().to_string())? {
            RdbItem::End => break,
            item => {
                if let Some(Wanted::Key(key)) = tally.take(item, plan.import.database, now_ms)
                    && value(&key.payload).is_none()
                {
                    bail!(
                        "{}: byte {}: the value of the key {} makes no sense: the snapshot is damaged",
                        path.display(),
                        reader.offset(),
                        quoted(&key.key)
                    );
                }
            }
        }
    }
    let end = reader.offset();
    if !reader.into_input().fill_buf()?.is_empty() {
        bail!("{}: byte {end}: more follows behind the snapshot's end: is it one file?", path.display());
    }
    Ok(tally)
}
