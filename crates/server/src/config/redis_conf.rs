//! Redis's own form of a file of settings, as `redis.conf` has it.
//!
//! A line is a name and words; `#` begins a comment, `include` brings another file's lines to this place, and
//! the last line of a name wins. What a directive becomes is one of four things:
//!
//! * a setting of the same name gets the value;
//! * a parameter that changes nothing here is remembered for CONFIG GET. If it has not Redis's default,
//!   somebody hoped for something: [`Config::notes`] says what happens instead;
//! * so it is with a value that cannot be had, where the server does without: one database, no daemon;
//! * what somebody relies on (replicas of another server, commands under other names, modules) is refused.

use super::foreign::Parameter;
use super::sources::{ConfigError, find};
use super::{Config, Kind, Setting};
use redis_surface::codec::inline::split;
use std::path::Path;

/// How deep files may include each other.
const INCLUDES_MAX: usize = 16;

/// What happens instead of what a directive asks for that the server can do without.
const INSTEAD: &[(&str, &str)] = &[
    ("daemonize", "the server stays in the foreground: let a supervisor, such as systemd, run it"),
    ("supervised", "a supervisor that gives the process a NOTIFY_SOCKET, such as systemd, is told anyway"),
    ("pidfile", "no such file is written: the supervisor knows the process, and so does INFO"),
    ("logfile", "the log goes to standard error"),
    ("syslog-enabled", "the log goes to standard error"),
    ("syslog-ident", "the log goes to standard error"),
    ("syslog-facility", "the log goes to standard error"),
    ("unixsocket", "there is no such socket: clients of this machine connect to 127.0.0.1"),
    ("unixsocketperm", "there is no such socket: clients of this machine connect to 127.0.0.1"),
    ("dbfilename", "checkpoints have names of their own in dir"),
    ("appendfilename", "the log has names of its own in dir"),
    ("appenddirname", "the log is in dir itself"),
    ("min-replicas-to-write", "a write of a cluster is acknowledged by a majority of the replicas, always"),
    ("min-replicas-max-lag", "a write of a cluster is acknowledged by a majority of the replicas, always"),
    ("oom-score-adj", "the system's own setting stays: the supervisor can set it"),
    ("oom-score-adj-values", "the system's own setting stays: the supervisor can set it"),
    ("masterauth", "nodes of a cluster know each other by the secret in its cluster.toml"),
    ("masteruser", "nodes of a cluster know each other by the secret in its cluster.toml"),
    ("proc-title-template", "the process keeps its name"),
    ("tls-client-key-file-pass", "nodes show the certificate of tls-cert-file to each other"),
];

/// What somebody relies on who has it in the file, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "replicaof",
        "replicas are nodes of a cluster here (docs/cluster.md): make one, and leave this line out",
    ),
    ("slaveof", "replicas are nodes of a cluster here (docs/cluster.md): make one, and leave this line out"),
    ("cluster-enabled", "a cluster is described in a cluster.toml: see --cluster, and docs/cluster.md"),
    ("rename-command", "commands keep their names: forbid them to users instead (docs/acl.md)"),
    ("loadmodule", "there are no modules"),
];

/// Whether a file is in Redis's form: its name says so.
pub(super) fn is_redis_conf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("conf"))
}

/// The words of a line; `None` for one that has none.
///
/// # Errors
/// What is wrong with it.
pub(super) fn words(line: &str) -> Result<Option<Vec<String>>, String> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let words = split(line.as_bytes()).ok_or("a quotation mark has no counterpart")?;
    let words = words.iter().map(|word| String::from_utf8(word.as_bytes().to_vec()));
    words.collect::<Result<Vec<_>, _>>().map(Some).map_err(|_| "it is no UTF-8".to_owned())
}

/// A directive that gives a setting this value.
pub(super) fn line_of(setting: &Setting, value: &str) -> String {
    let value = match setting.kind {
        Kind::Words | Kind::OutputLimits | Kind::Percentiles if !value.is_empty() => value.to_owned(),
        _ => quoted(value),
    };
    format!("{} {value}", setting.name)
}

/// A word as [`words`] reads it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// The error of a line.
fn wrong(origin: &str, problem: String) -> ConfigError {
    ConfigError::Directive { origin: origin.to_owned(), problem }
}

impl Config {
    /// Takes the directives of a text that is in Redis's form, from a file that so many others include.
    pub(super) fn read_redis_conf(
        &mut self,
        path: &Path,
        text: &str,
        depth: usize,
    ) -> Result<(), ConfigError> {
        for (number, line) in text.lines().enumerate() {
            let origin = format!("{}:{}", path.display(), number + 1);
            let words = words(line).map_err(|problem| wrong(&origin, problem))?;
            match words.unwrap_or_default().split_first() {
                None => {}
                Some((name, values)) if name.eq_ignore_ascii_case("include") => {
                    self.include(&origin, values, depth)?;
                }
                Some((name, values)) => self.directive(&origin, &name.to_ascii_lowercase(), values)?,
            }
        }
        Ok(())
    }

    fn include(&mut self, origin: &str, values: &[String], depth: usize) -> Result<(), ConfigError> {
        let [path] = values else {
            return Err(wrong(origin, "include: names one file".to_owned()));
        };
        if path.contains(['*', '?', '[']) {
            return Err(wrong(origin, "include: patterns are not taken: name each file".to_owned()));
        }
        if depth >= INCLUDES_MAX {
            let problem = format!("include: files include each other more than {INCLUDES_MAX} deep");
            return Err(wrong(origin, problem));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|cause| wrong(origin, format!("include: {path} cannot be read: {cause}")))?;
        self.read_redis_conf(Path::new(path), &text, depth + 1)
    }

    fn directive(&mut self, origin: &str, name: &str, values: &[String]) -> Result<(), ConfigError> {
        let said = values.join(" ");
        let why = |table: &[(&str, &'static str)]| {
            table.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
        };
        if let Some(why) = why(REFUSED) {
            // As without the line.
            if (name == "cluster-enabled" && said == "no") || said.eq_ignore_ascii_case("no one") {
                return Ok(());
            }
            return Err(wrong(origin, format!("{name}: {why}")));
        }
        if let Some(setting) = Config::setting(name) {
            return match setting.kind {
                Kind::Fixed(only, why) if said != only => {
                    self.note(origin, name, &said, why);
                    Ok(())
                }
                _ if values.is_empty() => Err(ConfigError::Value {
                    origin: origin.to_owned(),
                    name: setting.name,
                    problem: format!("needs {} behind it", setting.kind.expectation()),
                }),
                // A user's rules may have quotation marks of their own.
                Kind::Users => {
                    let words: Vec<String> = values.iter().map(|word| quoted(word)).collect();
                    self.set(origin, name, &words.join(" "))
                }
                _ => self.set(origin, name, &said),
            };
        }
        let Some(parameter) = Parameter::named(name) else {
            if let Some(why) = why(INSTEAD) {
                self.note(origin, name, &said, why);
                return Ok(());
            }
            return find(origin, name).map(|_| ());
        };
        if !parameter.is_default(&said) {
            self.note(origin, name, &said, why(INSTEAD).unwrap_or("changes nothing here"));
        }
        match parameter.is_fixed() {
            // Told as it is here, whatever the file hopes for.
            true => Ok(()),
            false => {
                let set = parameter.set(self, &said);
                set.map_err(|problem| wrong(origin, format!("{name} {said}: {problem}")))
            }
        }
    }

    fn note(&mut self, origin: &str, name: &str, said: &str, why: &str) {
        self.notes.push(format!("{origin}: {name} {}: {why}", if said.is_empty() { "''" } else { said }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        let mut config = Config::default();
        let read = config.read_redis_conf(Path::new("redis.conf"), text, 0);
        read.map(|()| config).map_err(|error| error.to_string())
    }

    #[test]
    fn directives_are_settings_and_the_last_one_wins() {
        let config = read(
            "# a comment\r\n\n  port 7000\nPORT 7001\nbind 127.0.0.1 -::1\n\
             requirepass \"a \\\"b\\\" # \\\\ c\"\n\
             client-output-buffer-limit replica 256mb 64mb 60\nclient-output-buffer-limit pubsub 1 2 3\n\
             maxmemory 1gb\nhash-max-ziplist-entries 9\nuser alice on +@all ~* >secret\n\
             notify-keyspace-events \"\"\n\
             hz 10\ndaemonize no\nreplicaof no one\ncluster-enabled no\nsave \"\"\n",
        )
        .expect("settings");
        assert_eq!((config.port, config.maxmemory, config.hash_max_listpack_entries), (7001, 1 << 30, 9));
        assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
        assert_eq!(config.requirepass.for_file(), "a \"b\" # \\ c");
        assert_eq!(config.users().expect("valid").len(), 1);
        let limits = (Config::setting("client-output-buffer-limit").expect("exists").get)(&config);
        assert!(limits.ends_with("slave 268435456 67108864 60 pubsub 1 2 3"), "{limits}");
        assert_eq!(config.notes, Vec::<String>::new(), "all of it is as the file wants it");
    }

    #[test]
    fn what_is_done_otherwise_is_told() {
        let config = read(
            "daemonize yes\nlogfile /var/log/redis.log\ndatabases 16\nappendonly no\nsave 900 1\nhz 50\n\
             oom-score-adj-values 0 200 800\nunixsocket /run/redis.sock\n",
        )
        .expect("settings");
        for (note, want) in config.notes.iter().zip([
            "redis.conf:1: daemonize yes: the server stays in the foreground",
            "redis.conf:2: logfile /var/log/redis.log: the log goes to standard error",
            "redis.conf:3: databases 16: Ordo has one database",
            "redis.conf:4: appendonly no: the log is the database",
            "redis.conf:5: save 900 1: ",
            "redis.conf:6: hz 50: changes nothing here",
            "redis.conf:7: oom-score-adj-values 0 200 800: the system's own setting stays",
            "redis.conf:8: unixsocket /run/redis.sock: there is no such socket",
        ]) {
            assert!(note.starts_with(want), "{note}");
        }
        assert_eq!(config.notes.len(), 8);
        assert_eq!(Parameter::named("hz").expect("known").get(&config), "50");
        assert_eq!(Parameter::named("daemonize").expect("known").get(&config), "no");
    }

    #[test]
    fn what_somebody_relies_on_and_what_nobody_knows_is_refused() {
        for (text, wants) in [
            ("replicaof 10.0.0.1 6379", &["redis.conf:1", "docs/cluster.md"][..]),
            ("\ncluster-enabled yes", &["redis.conf:2", "--cluster"]),
            ("rename-command FLUSHALL \"\"", &["rename-command", "docs/acl.md"]),
            ("loadmodule /x.so", &["no modules"]),
            ("prot 1", &["redis.conf:1", "did you mean 'port'"]),
            ("port", &["port: needs a whole number"]),
            ("port many", &["port", "65535"]),
            ("hz many", &["hz many: argument couldn't be parsed"]),
            ("requirepass \"half", &["redis.conf:1", "quotation mark"]),
            ("include", &["include: names one file"]),
            ("include /etc/redis/*.conf", &["patterns"]),
            ("include /nonexistent/a.conf", &["redis.conf:1", "/nonexistent/a.conf cannot be read"]),
        ] {
            let error = read(text).expect_err("refused");
            for want in wants {
                assert!(error.contains(want), "{text}: {error}");
            }
        }
    }

    #[test]
    fn files_are_included_where_they_are_named_and_never_for_ever() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
        let (main, part) = (path("main.conf"), path("part.conf"));
        std::fs::write(&part, "port 7001\ntimeout 5\nhz 99\n").expect("written");
        std::fs::write(&main, format!("port 1\ntimeout 4\ninclude {part}\nport 7002\n")).expect("written");
        let mut config = Config::default();
        config.read_file(Path::new(&main)).expect("settings");
        assert_eq!((config.port, config.timeout), (7002, 5));
        assert!(config.notes[0].starts_with(&format!("{part}:3: hz 99")), "{:?}", config.notes);
        std::fs::write(&part, format!("include {main}\n")).expect("written");
        let error = Config::default().read_file(Path::new(&main)).expect_err("refused").to_string();
        assert!(error.contains("include each other"), "{error}");
    }

    #[test]
    fn a_quoted_word_is_read_as_it_was() {
        for word in ["", "plain", "a b", "\"", "\\", "#x", "it's", "\u{e9}"] {
            assert_eq!(words(&format!("name {}", quoted(word))), Ok(Some(vec!["name".into(), word.into()])));
        }
    }
}
