//! FUNCTION's subcommands.

use super::super::limits::SOURCE_BYTES_MAX;
use super::super::run::{Execution, Part, Program};
use super::super::shebang::ScriptFlags;
use super::super::{digest_of, run_to_end};
use super::library::{Library, Registered, name_of};
use super::payload::{self, Codes};
use super::{Directory, function_key, library_key, owner, read_library, unlink};
use crate::arguments::Arguments;
use crate::commands::options;
use crate::errors;
use crate::execute::Terms;
use crate::pattern;
use std::collections::{BTreeMap, BTreeSet};
use txn::{Args, Blob, Intent, Outcome, Reply, Stop, Tx};

/// The largest payload of FUNCTION RESTORE: its libraries are compiled by one transaction.
const RESTORE_BYTES_MAX: usize = 8 * SOURCE_BYTES_MAX;
const NO_LIBRARY: Reply = Reply::error("ERR Library not found");
const NO_FUNCTIONS: Reply = Reply::error("ERR No functions registered");
const UNREADABLE: Reply =
    Reply::error("ERR the library's code gave no list of functions; please report this");
const FLUSH_MODE: Reply = Reply::error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
const RESTORE_POLICY: Reply =
    Reply::error("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.");
const NO_PATTERN: Reply = Reply::error("ERR library name argument was not given");

fn error(text: &str, name: &[u8], rest: &str) -> Reply {
    let name = super::super::convert::line(name);
    Reply::error_owned(format!("ERR {text}{name}{rest}"))
}

/// Libraries that were loaded and are not linked yet.
#[derive(Default)]
struct Loaded {
    libraries: BTreeMap<Blob, Library>,
    /// The names of their functions, in lower case.
    functions: BTreeSet<Vec<u8>>,
    /// What loading them took.
    steps: u64,
}

impl Loaded {
    /// Runs a library's code for what it registers, and keeps both. The inner error is the reply.
    async fn load(&mut self, tx: &Tx, name: Blob, code: &Blob) -> Result<Result<(), Reply>, Stop> {
        let digest = digest_of(code);
        let program = Program { part: Part::Registrations, digest, text: code.clone(), code_at: 0 };
        let no_arguments = Arguments::Owned(Box::new(Args::new()));
        let mut execution = Execution::new(tx.clone(), no_arguments, program, 0, true, Terms::default());
        // What is compiled is bounded by its size.
        execution.steps_before = self.steps;
        let (outcome, steps) = run_to_end(execution).await;
        self.steps = steps;
        let functions = match outcome? {
            Reply::Array(list) => list.iter().map(registered).collect::<Option<Vec<_>>>(),
            failure @ Reply::Error(_) => return Ok(Err(failure)),
            _ => None,
        };
        let Some(functions) = functions else {
            return Ok(Err(UNREADABLE));
        };
        if functions.is_empty() {
            return Ok(Err(NO_FUNCTIONS));
        }
        let library = Library::new(digest, code, functions);
        for function in &library.functions {
            if !self.functions.insert(function.name.to_ascii_lowercase()) {
                return Ok(Err(exists(&function.name)));
            }
        }
        self.libraries.insert(name, library);
        Ok(Ok(()))
    }

    /// Adds the libraries to those that there are, in place of those that have their names. The inner error
    /// is the reply.
    async fn link(self, tx: &mut Tx, mut directory: Directory) -> Result<Result<(), Reply>, Stop> {
        for library in self.libraries.values() {
            for function in &library.functions {
                let owner = owner(tx, &function.name).await?;
                if owner.is_some_and(|owner| !self.libraries.contains_key(&owner)) {
                    return Ok(Err(exists(&function.name)));
                }
            }
        }
        for name in self.libraries.keys() {
            if directory.contains(name) {
                unlink(tx, name).await?;
            }
        }
        for (name, library) in &self.libraries {
            for function in &library.functions {
                tx.put(&function_key(&function.name), name.clone()).await?;
            }
            tx.put(&library_key(name), library.record().clone()).await?;
            directory.add(name, library.functions.len());
        }
        directory.write(tx).await?;
        Ok(Ok(()))
    }
}

fn exists(function: &[u8]) -> Reply {
    error("Function ", function, " already exists")
}

/// A function as the prelude tells of it: its name, its description or nil, and its flags.
fn registered(reply: &Reply) -> Option<Registered> {
    let Reply::Array(fields) = reply else {
        return None;
    };
    let [Reply::Bulk(name), description, Reply::Array(flags)] = &fields[..] else {
        return None;
    };
    let description = match description {
        Reply::Nil => None,
        Reply::Bulk(text) => Some(text.clone()),
        _ => return None,
    };
    let mut all = ScriptFlags::default();
    for flag in flags {
        let Reply::Bulk(flag) = flag else {
            return None;
        };
        all = all.with(ScriptFlags::named(flag)?);
    }
    Some(Registered { name: name.clone(), description, flags: all })
}

/// FUNCTION LOAD [REPLACE] code
pub(super) async fn load(mut tx: Tx, arguments: Arguments) -> Outcome {
    let Some((code, options)) = arguments.split_last() else {
        return Ok(super::WRONG_ARITY);
    };
    if let Some(unknown) = options.iter().find(|word| !options::is(word, "REPLACE")) {
        return Ok(error("Unknown option given: ", unknown, ""));
    }
    let name = match name_of(code) {
        Ok(name) => name,
        Err(reply) => return Ok(reply),
    };
    let directory = Directory::read(&mut tx, Intent::Update).await?;
    if options.is_empty() && directory.contains(&name) {
        return Ok(error("Library '", &name, "' already exists"));
    }
    let mut loaded = Loaded::default();
    if let Err(reply) = loaded.load(&tx, name.clone(), code).await? {
        return Ok(reply);
    }
    Ok(match loaded.link(&mut tx, directory).await? {
        Ok(()) => Reply::Bulk(name),
        Err(reply) => reply,
    })
}

/// FUNCTION DELETE library
pub(super) async fn delete(mut tx: Tx, arguments: Arguments) -> Outcome {
    let Some(name) = arguments.first() else {
        return Ok(super::WRONG_ARITY);
    };
    let mut directory = Directory::read(&mut tx, Intent::Update).await?;
    if !directory.contains(name) {
        return Ok(NO_LIBRARY);
    }
    unlink(&mut tx, name).await?;
    directory.remove(name);
    directory.write(&mut tx).await?;
    Ok(Reply::OK)
}

/// FUNCTION FLUSH [ASYNC | SYNC]
pub(super) async fn flush(mut tx: Tx, arguments: Arguments) -> Outcome {
    match &arguments[..] {
        [] => {}
        [mode] if options::is(mode, "SYNC") || options::is(mode, "ASYNC") => {}
        [_] => return Ok(FLUSH_MODE),
        _ => return Ok(errors::subcommand_syntax("FUNCTION", b"flush")),
    }
    let directory = Directory::read(&mut tx, Intent::Update).await?;
    remove_all(&mut tx, &directory).await?;
    Ok(Reply::OK)
}

async fn remove_all(tx: &mut Tx, directory: &Directory) -> Result<(), Stop> {
    for (name, _) in &directory.libraries {
        unlink(tx, name).await?;
    }
    Directory::default().write(tx).await
}

/// FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]
pub(super) async fn list(mut tx: Tx, arguments: Arguments) -> Outcome {
    let (mut wanted, mut with_code) = (None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if !with_code && options::is(word, "WITHCODE") {
            with_code = true;
        } else if wanted.is_none() && options::is(word, "LIBRARYNAME") {
            match words.next() {
                Some(pattern) => wanted = Some(pattern.to_ascii_lowercase()),
                None => return Ok(NO_PATTERN),
            }
        } else {
            return Ok(error("Unknown argument ", word, ""));
        }
    }
    let directory = Directory::read(&mut tx, Intent::Read).await?;
    let mut found = Vec::new();
    for (name, _) in &directory.libraries {
        let lower = name.to_ascii_lowercase();
        let is_wanted = |pattern: &Vec<u8>| pattern::matches(pattern, &lower);
        if wanted.as_ref().is_none_or(is_wanted)
            && let Some(library) = read_library(&mut tx, name, Intent::Read).await?
        {
            found.push(described(name, &library, with_code));
        }
    }
    Ok(Reply::Array(found))
}

fn described(name: &Blob, library: &Library, with_code: bool) -> Reply {
    let entry = |key: &'static str, value: Reply| (Reply::bulk(key), value);
    let function = |function: &Registered| {
        let flags = function.flags.names().map(|flag| Reply::Status(flag.into()));
        let description = function.description.clone();
        Reply::Map(vec![
            entry("name", Reply::Bulk(function.name.clone())),
            entry("description", description.map_or(Reply::Nil, Reply::Bulk)),
            entry("flags", Reply::Set(flags.collect())),
        ])
    };
    let functions = library.functions.iter().map(function).collect();
    let mut map = vec![
        entry("library_name", Reply::Bulk(name.clone())),
        entry("engine", Reply::bulk("LUA")),
        entry("functions", Reply::Array(functions)),
    ];
    if with_code {
        map.push(entry("library_code", Reply::bulk(library.code())));
    }
    Reply::Map(map)
}

/// FUNCTION STATS. No function is told to be running: which one is differs from node to node, and several may
/// be.
pub(super) async fn stats(mut tx: Tx) -> Outcome {
    let entry = |key: &'static str, value: Reply| (Reply::bulk(key), value);
    let directory = Directory::read(&mut tx, Intent::Read).await?;
    let functions: u64 = directory.libraries.iter().map(|(_, count)| count).sum();
    let libraries = directory.libraries.len() as i64;
    let counts = vec![
        entry("libraries_count", Reply::Integer(libraries)),
        entry("functions_count", Reply::Integer(functions as i64)),
    ];
    Ok(Reply::Map(vec![
        entry("running_script", Reply::Nil),
        entry("engines", Reply::Map(vec![entry("LUA", Reply::Map(counts))])),
    ]))
}

/// FUNCTION DUMP
pub(super) async fn dump(mut tx: Tx) -> Outcome {
    let directory = Directory::read(&mut tx, Intent::Read).await?;
    let mut libraries = Vec::new();
    for (name, _) in &directory.libraries {
        libraries.extend(read_library(&mut tx, name, Intent::Read).await?);
    }
    let payload = payload::write(libraries.iter().map(Library::code));
    Ok(Reply::bulk(payload))
}

/// FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]
pub(super) async fn restore(mut tx: Tx, arguments: Arguments) -> Outcome {
    let (payload, policy) = match &arguments[..] {
        [payload] => (payload, None),
        [payload, policy] => (payload, Some(policy)),
        _ => return Ok(errors::subcommand_syntax("FUNCTION", b"restore")),
    };
    let is = |name: &str| policy.is_some_and(|policy| options::is(policy, name));
    let (flushes, replaces) = (is("FLUSH"), is("REPLACE"));
    if policy.is_some() && !flushes && !replaces && !is("APPEND") {
        return Ok(RESTORE_POLICY);
    }
    let codes = match Codes::of(payload) {
        Ok(codes) => codes,
        Err(reply) => return Ok(reply),
    };
    let mut loaded = Loaded::default();
    if payload.len() > RESTORE_BYTES_MAX {
        return Ok(Reply::error_owned(format!(
            "ERR this payload has {} bytes, and FUNCTION RESTORE takes {RESTORE_BYTES_MAX} at most: load \
             the libraries one by one with FUNCTION LOAD",
            payload.len()
        )));
    }
    for code in codes {
        let named = code.and_then(|code| Ok((name_of(&code)?, code)));
        let (name, code) = match named {
            Ok(named) => named,
            Err(reply) => return Ok(reply),
        };
        if loaded.libraries.contains_key(&name) {
            return Ok(error("Library '", &name, "' already exists"));
        }
        if let Err(reply) = loaded.load(&tx, name, &code).await? {
            return Ok(reply);
        }
    }
    let mut directory = Directory::read(&mut tx, Intent::Update).await?;
    if flushes {
        remove_all(&mut tx, &directory).await?;
        directory = Directory::default();
    }
    let known = |name: &&Blob| !replaces && directory.contains(name);
    if let Some(name) = loaded.libraries.keys().find(known) {
        return Ok(error("Library ", name, " already exists"));
    }
    Ok(match loaded.link(&mut tx, directory).await? {
        Ok(()) => Reply::OK,
        Err(reply) => reply,
    })
}
