//! The commands about commands: all that COMMAND and ACL CAT reply derives from the table.

use crate::acl::{KeyAccess, check};
use crate::commands::options;
use crate::errors;
use crate::involved::inner_of;
use crate::pattern;
use crate::table::{self, CATEGORIES, COMMANDS, Command, FLAG_NAMES, Flags, KeyPlaces, KeySpec, Run};
use txn::{Blob, Reply};

fn status(text: impl Into<std::borrow::Cow<'static, str>>) -> Reply {
    Reply::Status(text.into())
}
fn integer(value: usize) -> Reply {
    Reply::Integer(value as i64)
}
fn entry(name: &'static str, value: Reply) -> (Reply, Reply) {
    (Reply::bulk(name), value)
}

/// The command or subcommand (`container|subcommand`) with a name.
fn find(name: &[u8]) -> Option<&'static Command> {
    table::find_number(name).map(table::CommandNumber::command)
}

/// First key, last key and step over all of a command's key specifications, as COMMAND told them before 7.0.
fn span(command: &Command) -> (i64, i64, i64) {
    let mut span: Option<(usize, isize, usize)> = None;
    for spec in command.keys {
        let KeyPlaces::Range { first, last, step } = spec.places else {
            continue;
        };
        span = Some(match span {
            None => (first, last, step),
            Some((f, l, s)) => (f.min(first), if l < 0 || last < 0 { -1 } else { l.max(last) }, s.min(step)),
        });
    }
    span.map_or((0, 0, 0), |(first, last, step)| (first as i64, last as i64, step as i64))
}

fn key_flags(spec: &KeySpec) -> Vec<Reply> {
    spec.flags.iter().map(|&flag| status(flag)).collect()
}

fn key_spec(spec: &KeySpec) -> Reply {
    let map = |kind: &'static str, spec: Vec<(Reply, Reply)>| {
        Reply::Map(vec![entry("type", Reply::bulk(kind)), entry("spec", Reply::Map(spec))])
    };
    let index = |at: usize| map("index", vec![entry("index", integer(at))]);
    let unknown = || map("unknown", Vec::new());
    let (begin, find) = match spec.places {
        KeyPlaces::Range { first, last, step } => {
            // A last key that counts from the end stays; one from the front is relative to the first.
            let last = if last < 0 { last as i64 } else { last as i64 - first as i64 };
            let range = vec![
                entry("lastkey", Reply::Integer(last)),
                entry("keystep", integer(step)),
                entry("limit", integer(0)),
            ];
            (index(first), map("range", range))
        }
        KeyPlaces::Counted { at } => {
            let count = vec![
                entry("keynumidx", integer(0)),
                entry("firstkey", integer(1)),
                entry("keystep", integer(1)),
            ];
            (index(at), map("keynum", count))
        }
        KeyPlaces::Word { word, start, half } => {
            let keyword = vec![entry("keyword", Reply::bulk(word)), entry("startfrom", integer(start))];
            let range = vec![
                entry("lastkey", Reply::Integer(if half { -1 } else { 0 })),
                entry("keystep", integer(1)),
                entry("limit", integer(if half { 2 } else { 0 })),
            ];
            (map("keyword", keyword), map("range", range))
        }
        KeyPlaces::Patterns | KeyPlaces::SortStore => (unknown(), unknown()),
    };
    Reply::Map(vec![
        entry("flags", Reply::Set(key_flags(spec))),
        entry("begin_search", begin),
        entry("find_keys", find),
    ])
}

fn details(command: &Command) -> Reply {
    let (first, last, step) = span(command);
    let flags = FLAG_NAMES.iter().filter(|(flag, _)| command.is(*flag)).map(|&(_, name)| status(name));
    let categories = command.acl_categories().into_iter().map(|category| status(format!("@{category}")));
    Reply::Array(vec![
        Reply::bulk(command.name),
        Reply::Integer(i64::from(command.arity)),
        Reply::Set(flags.collect()),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(step),
        Reply::Set(categories.collect()),
        Reply::Set(Vec::new()),
        Reply::Set(command.keys.iter().map(key_spec).collect()),
        Reply::Set(command.subcommands().iter().map(details).collect()),
    ])
}

fn documentation(command: &Command) -> Reply {
    let told = command.documentation();
    let mut map = vec![
        entry("summary", Reply::bulk(told.summary)),
        entry("since", Reply::bulk(told.since)),
        entry("group", Reply::bulk(command.group.name())),
    ];
    if !told.complexity.is_empty() {
        map.push(entry("complexity", Reply::bulk(told.complexity)));
    }
    let arguments = table::arguments_of(command);
    if !arguments.is_empty() {
        map.push(entry("arguments", Reply::Array(arguments)));
    }
    if !command.subcommands().is_empty() {
        let subcommands = command.subcommands().iter().map(|sub| entry(sub.name, documentation(sub)));
        map.push(entry("subcommands", Reply::Map(subcommands.collect())));
    }
    Reply::Map(map)
}

/// COMMAND
pub fn all(_args: &[Blob]) -> Reply {
    Reply::Array(COMMANDS.iter().map(details).collect())
}

/// COMMAND COUNT
pub fn count(_args: &[Blob]) -> Reply {
    integer(COMMANDS.len())
}

/// COMMAND INFO [name ...]
pub fn info(args: &[Blob]) -> Reply {
    if args.len() == 1 {
        return all(args);
    }
    Reply::Array(args[1..].iter().map(|name| find(name).map_or(Reply::Nil, details)).collect())
}

/// COMMAND DOCS [name ...]
pub fn docs(args: &[Blob]) -> Reply {
    let wanted: Vec<&Command> = if args.len() == 1 {
        COMMANDS.iter().collect()
    } else {
        args[1..].iter().filter_map(|name| find(name)).collect()
    };
    Reply::Map(wanted.into_iter().map(|command| entry(command.name, documentation(command))).collect())
}

/// COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern]
pub fn list(args: &[Blob]) -> Reply {
    let names = |wanted: &dyn Fn(&Command) -> bool| {
        let all = COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands()));
        Reply::Array(all.filter(|command| wanted(command)).map(|command| Reply::bulk(command.name)).collect())
    };
    match &args[1..] {
        [] => names(&|_| true),
        [filter, kind, value] if options::is(filter, "FILTERBY") => {
            if options::is(kind, "MODULE") {
                Reply::Array(Vec::new())
            } else if options::is(kind, "ACLCAT") {
                names(&|command| in_category(command, value))
            } else if options::is(kind, "PATTERN") {
                let pattern = value.to_ascii_lowercase();
                names(&|command| pattern::matches(&pattern, command.name.as_bytes()))
            } else {
                errors::SYNTAX
            }
        }
        _ => errors::SYNTAX,
    }
}

fn in_category(command: &Command, category: &[u8]) -> bool {
    command.acl_categories().iter().any(|name| name.as_bytes().eq_ignore_ascii_case(category))
}

/// The keys of the command in `argv` with their specifications.
pub(crate) fn keys_of(argv: &[Blob]) -> Result<Vec<(Blob, &'static KeySpec)>, Reply> {
    let command = match table::resolve(argv) {
        Ok(resolved) => resolved.command,
        Err(table::ResolveError::Arity(_)) => return Err(errors::GETKEYS_ARITY),
        Err(_) => return Err(errors::GETKEYS_UNKNOWN),
    };
    if let Some(inner) = inner_of(command, argv) {
        // It is never nested, so this goes no deeper.
        return inner.map_err(|_| errors::GETKEYS_INVALID).and_then(keys_of);
    }
    if command.keys.is_empty() {
        return Err(errors::GETKEYS_NO_KEYS);
    }
    let mut keys = Vec::new();
    for spec in command.keys {
        match spec.places_in(argv.len(), |place| argv.get(place).cloned()) {
            Some(places) => keys.extend(places.map(|place| (argv[place].clone(), spec))),
            // What may name no key is taken to name none, whatever is wrong with it.
            None if command.is(Flags::NO_MANDATORY_KEYS) => {}
            None => return Err(errors::GETKEYS_INVALID),
        }
    }
    Ok(keys)
}

/// [`keys_of`], without what is no key but a channel, for example.
fn real_keys_of(argv: &[Blob]) -> Result<Vec<(Blob, &'static KeySpec)>, Reply> {
    let mut keys = keys_of(argv)?;
    let is_real = |spec: &KeySpec| !spec.flags.contains(&"not_key");
    if keys.iter().any(|(_, spec)| !is_real(spec)) {
        keys.retain(|(_, spec)| is_real(spec));
        if keys.is_empty() {
            return Err(errors::GETKEYS_NO_KEYS);
        }
    }
    Ok(keys)
}

/// COMMAND GETKEYS command [argument ...]
pub fn getkeys(args: &[Blob]) -> Reply {
    real_keys_of(&args[1..]).map_or_else(
        |error| error,
        |keys| Reply::Array(keys.into_iter().map(|(key, _)| Reply::Bulk(key)).collect()),
    )
}

/// COMMAND GETKEYSANDFLAGS command [argument ...]
pub fn getkeysandflags(args: &[Blob]) -> Reply {
    let argv = &args[1..];
    let with_flags = |(key, spec): (Blob, &KeySpec)| {
        let flags: &[&'static str] =
            match variable_access(argv).filter(|_| spec.flags.contains(&"variable_flags")) {
                None => spec.flags,
                Some(access) => match (access.reads, access.writes) {
                    (true, false) => &["RO", "access"],
                    (false, _) => &["OW", "update"],
                    (true, true) => &["RW", "access", "update"],
                },
            };
        let flags = flags.iter().map(|&flag| status(flag));
        Reply::Array(vec![Reply::Bulk(key), Reply::Set(flags.collect())])
    };
    real_keys_of(argv)
        .map_or_else(|error| error, |keys| Reply::Array(keys.into_iter().map(with_flags).collect()))
}

/// What a command does with its key if that depends on its words.
fn variable_access(argv: &[Blob]) -> Option<KeyAccess> {
    let command = table::resolve(argv).ok()?.command;
    match inner_of(command, argv) {
        Some(inner) => variable_access(inner.ok()?),
        None => Some(check::variable_access(command, argv)),
    }
}

/// ACL CAT [category]
pub fn acl_cat(args: &[Blob]) -> Reply {
    match &args[1..] {
        [] => Reply::Array(CATEGORIES.iter().map(|&category| Reply::bulk(category)).collect()),
        [category] if !CATEGORIES.iter().any(|name| options::is(category, name)) => {
            errors::unknown_category(category)
        }
        [category] => {
            let mut names = Vec::new();
            for command in COMMANDS {
                let whole = !matches!(command.run, Run::Container(_));
                if whole && in_category(command, category) {
                    names.push(Reply::bulk(command.name));
                }
                let subcommands = command.subcommands().iter().filter(|sub| in_category(sub, category));
                names.extend(subcommands.map(|sub| Reply::bulk(sub.name)));
            }
            Reply::Array(names)
        }
        _ => errors::subcommand_syntax("ACL", &args[0]),
    }
}
