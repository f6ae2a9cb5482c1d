//! Functions: FCALL, and the libraries that FUNCTION LOAD keeps.
//!
//! # Records
//!
//! Libraries live in the system space, like the bodies of scripts: ordered before their use, part of
//! checkpoints, and the same at every replica and partition. A library is one record (`library:` and its
//! name), with its code and what that registered. Functions' names are unique over all libraries, whatever
//! their case: the record `function:` and the name in lower case holds the library's name. The record
//! `libraries` lists the libraries with the numbers of their functions, in the order of their names. So a
//! call reads two records, and two loads meet at one.
//!
//! # A call
//!
//! A call runs the library's whole code anew and then the function, as one execution under the limits of
//! scripts. Redis runs the code once; what functions of it share and change there lasts until the server
//! ends, and is not replicated. Here it would depend on which calls a replica's thread had happened to run,
//! so it begins anew with every call. The compiled code is cached like scripts', by its digest.
//!
//! Loading allows a tenth of the steps that a call may take, because each call spends them again.

mod commands;
mod library;
mod payload;

use super::run::Execution;
use super::{WRONG_ARITY, execute, keys_of, vm};
use crate::arguments::Arguments;
use crate::execute::Terms;
use crate::table::FunctionCommand;
use library::Library;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{Blob, Intent, Key, Outcome, ProcedureFuture, Reply, Stop, Tx};

const NO_FUNCTION: Reply = Reply::error("ERR Function not found");
const BAD_NUMBER_OF_KEYS: Reply = Reply::error("ERR Bad number of keys provided");
const DIRECTORY: &[u8] = b"libraries";
pub(super) const LIBRARY_PREFIX: &[u8] = b"library:";
pub(super) const FUNCTION_PREFIX: &[u8] = b"function:";

/// Starts a subcommand of FUNCTION in a transaction.
pub(super) fn start(tx: Tx, command: FunctionCommand, arguments: Arguments) -> ProcedureFuture {
    match command {
        FunctionCommand::Delete => Box::pin(commands::delete(tx, arguments)),
        FunctionCommand::Dump => Box::pin(commands::dump(tx)),
        FunctionCommand::Flush => Box::pin(commands::flush(tx, arguments)),
        FunctionCommand::List => Box::pin(commands::list(tx, arguments)),
        FunctionCommand::Load => Box::pin(commands::load(tx, arguments)),
        FunctionCommand::Restore => Box::pin(commands::restore(tx, arguments)),
        FunctionCommand::Stats => Box::pin(commands::stats(tx)),
    }
}

fn library_key(name: &[u8]) -> Key {
    Key::system(&[LIBRARY_PREFIX, name].concat())
}

fn function_key(name: &[u8]) -> Key {
    Key::system(&[FUNCTION_PREFIX, &name.to_ascii_lowercase()].concat())
}

/// FCALL and FCALL_RO.
pub(super) async fn fcall(mut tx: Tx, arguments: Arguments, read_only: bool, terms: Terms) -> Outcome {
    let Some(name) = arguments.first().cloned() else {
        return Ok(WRONG_ARITY);
    };
    let Some(library) = owner(&mut tx, &name).await? else {
        return Ok(NO_FUNCTION);
    };
    let library = read_library(&mut tx, &library, Intent::Read).await?;
    let Some((library, function)) =
        library.as_ref().and_then(|library| Some((library, library.function(&name)?)))
    else {
        return Ok(NO_FUNCTION);
    };
    let keys = match keys_of(&arguments, BAD_NUMBER_OF_KEYS) {
        Ok(keys) => keys,
        Err(reply) => return Ok(reply),
    };
    let program = library.calling(function);
    let mut execution = Execution::new(tx, arguments, program, keys, read_only, terms);
    execution.tx.expect(execution.key_arguments().iter().map(|word| Key::from(word).hash64()));
    match vm::admit(&mut execution, function.flags) {
        Ok(()) => execute(execution).await,
        Err(reply) => Ok(reply),
    }
}

/// The name of the library that has a function, if one has.
async fn owner(tx: &mut Tx, function: &[u8]) -> Result<Option<Blob>, Stop> {
    let value = tx.get(&function_key(function)).await?;
    Ok(value.and_then(|value| value.as_string()))
}

async fn read_library(tx: &mut Tx, name: &[u8], intent: Intent) -> Result<Option<Library>, Stop> {
    let read = tx.read(&library_key(name), intent).await?;
    Ok(read.entry.and_then(|entry| Library::from_record(&entry.value.as_string()?)))
}

/// Which libraries there are.
#[derive(Default)]
struct Directory {
    /// Their names, in order, with the numbers of their functions.
    libraries: Vec<(Blob, u64)>,
}

impl Directory {
    async fn read(tx: &mut Tx, intent: Intent) -> Result<Directory, Stop> {
        let read = tx.read(&Key::system(DIRECTORY), intent).await?;
        let directory = read.entry.and_then(|entry| Directory::from_record(&entry.value.as_string()?));
        Ok(directory.unwrap_or_default())
    }

    fn from_record(record: &[u8]) -> Option<Directory> {
        let mut reader = Reader::new(record);
        let mut libraries = Vec::new();
        while !reader.is_empty() {
            libraries.push((reader.blob()?, reader.varint()?));
        }
        Some(Directory { libraries })
    }

    async fn write(&self, tx: &mut Tx) -> Result<(), Stop> {
        let mut record = Vec::new();
        for (name, functions) in &self.libraries {
            put_bytes(&mut record, name);
            put_varint(&mut record, *functions);
        }
        let key = Key::system(DIRECTORY);
        match record.is_empty() {
            true => tx.delete(&key).await,
            false => tx.put(&key, record).await,
        }
    }

    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.libraries.binary_search_by(|(known, _)| known.as_bytes().cmp(name))
    }

    fn contains(&self, name: &[u8]) -> bool {
        self.place(name).is_ok()
    }

    fn add(&mut self, name: &Blob, functions: usize) {
        let entry = (name.clone(), functions as u64);
        match self.place(name) {
            Ok(place) => self.libraries[place] = entry,
            Err(place) => self.libraries.insert(place, entry),
        }
    }

    fn remove(&mut self, name: &[u8]) {
        if let Ok(place) = self.place(name) {
            self.libraries.remove(place);
        }
    }
}

/// Deletes a library's record and those of its functions.
async fn unlink(tx: &mut Tx, name: &[u8]) -> Result<(), Stop> {
    let library = read_library(tx, name, Intent::Update).await?;
    for function in library.iter().flat_map(|library| &library.functions) {
        tx.delete(&function_key(&function.name)).await?;
    }
    tx.delete(&library_key(name)).await
}
