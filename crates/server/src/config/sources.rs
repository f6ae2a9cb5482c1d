//! Where settings come from: a file, TOML or in Redis's own form, then flags, which win.

use super::redis_conf::is_redis_conf;
use super::{Change, Config, Kind, PASSWORD_VARIABLE, SETTINGS, Setting};
use crate::cluster::ClusterConfigError;
use std::path::{Path, PathBuf};

/// Settings that could not be taken. Every message names the source.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A name that the table does not have.
    #[error("{origin}: there is no setting '{name}'{hint}. `ordo serve --help` lists all settings")]
    Unknown {
        /// The flag or the file.
        origin: String,
        /// The name as given.
        name: String,
        /// A similar name, as a question, or nothing.
        hint: String,
    },
    /// A value that the setting does not take.
    #[error("{origin}: {name}: {problem}")]
    Value {
        /// The flag or the file.
        origin: String,
        /// The setting.
        name: &'static str,
        /// What is wrong, with what is allowed.
        problem: String,
    },
    /// A file that could not be read.
    #[error("{path}: the configuration file cannot be read: {cause}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        cause: std::io::Error,
    },
    /// A file that is not TOML.
    #[error("{path}: not a TOML file: {cause}")]
    NotToml {
        /// The file.
        path: String,
        /// Where and why.
        cause: toml::de::Error,
    },
    /// A line of a file in Redis's form that is not taken.
    #[error("{origin}: {problem}")]
    Directive {
        /// The file and the line.
        origin: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A word on the command line that is neither a flag nor the configuration file.
    #[error(
        "command line: '{word}' is neither a setting (--name value) nor the one configuration file{hint}"
    )]
    Stray {
        /// The word.
        word: String,
        /// A setting that may be meant, as a question, or nothing.
        hint: String,
    },
    /// Settings that are valid alone and not together.
    #[error("{0}")]
    Together(String),
    /// The file that `cluster` names describes no cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterConfigError),
}

/// What a command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Invocation {
    /// To print the help text.
    Help,
    /// To print the version.
    Version,
    /// To serve.
    Serve(Box<Config>),
}

/// The words of a command line, taken apart.
pub struct Flags {
    /// The file of settings.
    pub file: Option<PathBuf>,
    /// The names of settings, each with the words behind it.
    pub flags: Vec<(String, Vec<String>)>,
}

impl Flags {
    /// Takes words apart: see [`Config::from_args`]. The inner error is what somebody asks for instead of
    /// serving.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Result<Flags, Invocation>, ConfigError> {
        let mut file: Option<PathBuf> = None;
        let mut flags: Vec<(String, Vec<String>)> = Vec::new();
        for word in args {
            match word.as_str() {
                "--help" | "-h" => return Ok(Err(Invocation::Help)),
                "--version" | "-V" | "-v" => return Ok(Err(Invocation::Version)),
                _ => {}
            }
            let flag = if word == "-p" { Some("port") } else { word.strip_prefix("--") };
            match flag {
                Some(flag) => match flag.split_once('=') {
                    Some((name, value)) => flags.push((name.to_owned(), vec![value.to_owned()])),
                    None => flags.push((flag.to_owned(), Vec::new())),
                },
                None => match flags.last_mut() {
                    Some((_, values)) => values.push(word),
                    None if file.is_none() && !word.starts_with('-') => {
                        file = Some(PathBuf::from(word));
                    }
                    None => {
                        let hint = match word.strip_prefix('-').and_then(closest) {
                            Some(similar) => format!(" (did you mean '--{similar}'?)"),
                            None => String::new(),
                        };
                        return Err(ConfigError::Stray { word, hint });
                    }
                },
            }
        }
        flags.retain(|(name, values)| {
            let is_file = name == "config" && values.len() == 1;
            if is_file {
                file = Some(PathBuf::from(&values[0]));
            }
            !is_file
        });
        Ok(Ok(Flags { file, flags }))
    }

    /// Words that say the same.
    pub fn into_words(self) -> Vec<String> {
        let file = self.file.map(|file| ["--config".to_owned(), file.to_string_lossy().into_owned()]);
        let flags = self.flags.into_iter().flat_map(|(name, values)| match &values[..] {
            // It would be taken for a name.
            [value] if value.starts_with("--") => vec![format!("--{name}={value}")],
            _ => std::iter::once(format!("--{name}")).chain(values).collect(),
        });
        file.into_iter().flatten().chain(flags).collect()
    }
}

impl Config {
    /// Reads the arguments of `ordo serve`: `[FILE] [--config FILE] [--name value ...]`. As with Redis, a
    /// value may be several words: all up to the next word that starts with `--`. `-p` is short for `--port`,
    /// as for redis-cli.
    pub fn from_args(args: impl IntoIterator<Item = String>) -> Result<Invocation, ConfigError> {
        let Flags { file, flags } = match Flags::parse(args)? {
            Ok(flags) => flags,
            Err(invocation) => return Ok(invocation),
        };
        let mut config = Config::default();
        if let Some(path) = file {
            config.read_file(&path)?;
        }
        for (name, values) in flags {
            if values.is_empty() {
                // An empty text must be said: a forgotten password would open the server.
                let setting = find("command line", &name)?;
                return Err(ConfigError::Value {
                    origin: "command line".to_owned(),
                    name: setting.name,
                    problem: format!("needs {} behind it", setting.kind.expectation()),
                });
            }
            config.set("command line", &name, &values.join(" "))?;
        }
        config.find_password(std::env::var(PASSWORD_VARIABLE).ok())?;
        config.validate()?;
        Ok(Invocation::Serve(Box::new(config)))
    }

    /// Takes the settings of a file: one in Redis's form if its name ends in `.conf`, TOML otherwise.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|cause| ConfigError::Unreadable { path: origin.clone(), cause })?;
        match is_redis_conf(path) {
            true => self.read_redis_conf(path, &text, 0)?,
            false => self.read_toml(&origin, &text)?,
        }
        self.file_has_secrets = ["requirepass", "user"].iter().any(|name| self.has(name));
        // Whatever becomes of the working directory.
        self.file = Some(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        Ok(())
    }

    /// Takes the settings of a TOML text.
    pub fn read_toml(&mut self, origin: &str, text: &str) -> Result<(), ConfigError> {
        let table: toml::Table =
            text.parse().map_err(|cause| ConfigError::NotToml { path: origin.to_owned(), cause })?;
        for (name, value) in &table {
            let is_users = Config::setting(name).is_some_and(|known| known.kind == Kind::Users);
            let text = text_of(value, if is_users { "\n" } else { " " });
            let Some(text) = text else {
                let setting = find(origin, name)?;
                let problem = format!("needs {}, and not a table or a date", setting.kind.expectation());
                return Err(ConfigError::Value { origin: origin.to_owned(), name: setting.name, problem });
            };
            self.set(origin, name, &text)?;
        }
        Ok(())
    }

    pub(super) fn set(&mut self, origin: &str, name: &str, text: &str) -> Result<(), ConfigError> {
        let setting = find(origin, name)?;
        (setting.set)(self, text).map_err(|problem| ConfigError::Value {
            origin: origin.to_owned(),
            name: setting.name,
            problem,
        })
    }

    /// Finds this node in its cluster's description, and refuses combinations that would expose the data: see
    /// [`Config::protected_mode`].
    pub fn validate(&mut self) -> Result<(), ConfigError> {
        self.find_password(None)?;
        self.join_cluster()?;
        if !self.user.0.is_empty() && !self.aclfile.is_empty() {
            return Err(ConfigError::Together(
                "user and aclfile: users come from the settings or from a file, not from both: leave one out"
                    .to_owned(),
            ));
        }
        self.users().map_err(ConfigError::Together)?;
        if self.tls_port > 0 && self.tls_port == self.port {
            return Err(ConfigError::Together(format!(
                "port and tls-port: both are {}. Choose another one for either, or say --port 0 to serve \
                 by TLS alone",
                self.port
            )));
        }
        if self.bind.is_empty() {
            return Err(ConfigError::Together(
                "bind: name at least one address, for example 127.0.0.1".to_owned(),
            ));
        }
        if self.http_port > 0 {
            if [self.port, self.tls_port].contains(&self.http_port) {
                return Err(ConfigError::Together(format!(
                    "http-port: {} is the port of Redis's clients, too. Choose another one",
                    self.http_port
                )));
            }
            if let Some(word) = self.http_bind.iter().find(|word| is_open(word)) {
                self.admit_open_http(word)?;
            }
            self.http_token()?;
        }
        // What a name stands for is known once it is resolved: see `net::listen`.
        match self.bind.iter().find(|word| is_open(word)) {
            Some(word) => self.admit_open(word),
            None => Ok(()),
        }
    }

    /// Refuses a word of `bind` that stands for an address which other machines may reach, unless there is a
    /// password or no protected mode.
    pub(crate) fn admit_open(&self, word: &str) -> Result<(), ConfigError> {
        if self.protected_mode && self.requirepass.is_none() {
            return Err(ConfigError::Together(format!(
                "bind {word}: anyone who reaches this address could read and write all data, because no \
                 password is \
                 set. Set one with --requirepass-file or in the variable {PASSWORD_VARIABLE}, or bind to \
                 127.0.0.1 only, or insist with --protected-mode no"
            )));
        }
        Ok(())
    }
}

/// Whether a word of `bind` is an address (no name) that other machines may reach.
fn is_open(word: &str) -> bool {
    let word = word.strip_prefix('-').unwrap_or(word);
    matches!(word, "*" | "::*") || word.parse::<std::net::IpAddr>().is_ok_and(|ip| !ip.is_loopback())
}

/// The text form of a value; the items of an array have `between` between them.
fn text_of(value: &toml::Value, between: &str) -> Option<String> {
    Some(match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(flag) => if *flag { "yes" } else { "no" }.to_owned(),
        toml::Value::Array(items) => {
            items.iter().map(|item| text_of(item, between)).collect::<Option<Vec<_>>>()?.join(between)
        }
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => return None,
    })
}

/// The setting of a name, or an error with a similar one.
pub(super) fn find(origin: &str, name: &str) -> Result<&'static Setting, ConfigError> {
    Config::setting(name).ok_or_else(|| ConfigError::Unknown {
        origin: origin.to_owned(),
        name: name.to_owned(),
        hint: closest(name).map(|similar| format!(" (did you mean '{similar}'?)")).unwrap_or_default(),
    })
}

/// The setting whose name is a few letters away.
fn closest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    closest_of(&name, SETTINGS.iter().map(|setting| setting.name))
}

/// Which of the names is a few letters away.
pub(super) fn closest_of<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|known| (edits(name, known), known))
        .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
        .min()
        .map(|(_, known)| known)
}

/// The Levenshtein distance.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

/// Settings that the help text does not tell of: nobody who runs a server has use for them.
pub const HIDDEN: &[&str] = &["behaviour-level"];

/// Under which words the help text has settings: each from the named one on.
const HEADINGS: &[(&str, &str)] = &[
    ("port", "Addresses"),
    ("requirepass", "Passwords and users"),
    ("cluster", "Cluster and engine"),
    ("tls-port", "TLS"),
    ("http-port", "Monitoring over HTTP"),
    ("dir", "Data and durability"),
    ("io-threads", "Threads and connections"),
    ("maxmemory", "Memory"),
    ("notify-keyspace-events", "Notifications"),
    ("slowlog-log-slower-than", "Slow commands and latency"),
    ("hash-max-listpack-entries", "What OBJECT ENCODING tells"),
    ("busy-reply-threshold", "Scripts and the log of the server"),
];

/// The text of `ordo serve --help`.
pub fn help() -> String {
    let mut text = String::from(
        "Serves Redis clients.\n\n\
         Usage: ordo serve [FILE] [--name value]...\n\n\
         FILE (or --config FILE) is a TOML file with the same names: `port = 6380`; one whose name ends in \
         .conf\nis read as Redis's own. Flags win over the file.\n\
         -p is short for --port; --version prints the version.\n\
         Settings marked * can also be changed while running, with CONFIG SET.\n\n",
    );
    for setting in SETTINGS.iter().filter(|setting| !HIDDEN.contains(&setting.name)) {
        if let Some((_, heading)) = HEADINGS.iter().find(|(first, _)| *first == setting.name) {
            text.push_str(&format!("{heading}:\n\n"));
        }
        let mark = if setting.change == Change::Anytime { "*" } else { "" };
        let default = if setting.default.is_empty() { "''" } else { setting.default };
        let default = match default {
            "." => "the current directory",
            other => other,
        };
        text.push_str(&format!(
            "  --{}{mark}\n      {}\n      Takes {}; the default is {default}.\n",
            setting.name,
            setting.help,
            setting.kind.expectation(),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(args: &[&str]) -> Config {
        match Config::from_args(args.iter().map(|word| (*word).to_owned())) {
            Ok(Invocation::Serve(config)) => *config,
            other => panic!("{args:?} gave {other:?}"),
        }
    }
    fn error(args: &[&str]) -> String {
        match Config::from_args(args.iter().map(|word| (*word).to_owned())) {
            Err(error) => error.to_string(),
            other => panic!("{args:?} gave {other:?}"),
        }
    }

    #[test]
    fn flags_take_words_up_to_the_next_flag() {
        let config = serve(&[
            "--bind",
            "127.0.0.1",
            "-::1",
            "--port",
            "7000",
            "--maxmemory=1gb",
            "--requirepass",
            "a b",
        ]);
        assert_eq!(config.bind, ["127.0.0.1", "-::1"]);
        assert_eq!(
            (config.port, config.maxmemory, config.requirepass.for_file()),
            (7000, 1 << 30, "a b".to_owned())
        );
    }

    #[test]
    fn short_flags_are_those_that_operators_try() {
        assert_eq!(serve(&["-p", "6400"]).port, 6400);
        let config = serve(&["--bind", "127.0.0.1", "-::1", "-p", "6400"]);
        assert_eq!((config.port, config.bind), (6400, vec!["127.0.0.1".to_owned(), "-::1".to_owned()]));
        assert!(error(&["-p"]).contains("port: needs"));
        for word in ["--version", "-V", "-v"] {
            let invocation = Config::from_args([word.to_owned()]).expect("no settings");
            assert_eq!(invocation, Invocation::Version, "{word}");
        }
        for (word, hint) in [("-port", "did you mean '--port'"), ("-x", "--name value")] {
            let error = error(&[word, "1"]);
            assert!(error.contains(&format!("'{word}' is neither")), "{error}");
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn a_flag_without_a_value_is_refused_and_an_empty_value_is_not() {
        for args in [&["--requirepass"][..], &["--requirepass", "--port", "7000"]] {
            let error = error(args);
            assert!(error.contains("requirepass") && error.contains("needs"), "{error}");
        }
        assert!(serve(&["--requirepass", ""]).requirepass.is_none());
    }

    #[test]
    fn a_file_sets_and_flags_win() {
        let dir = std::env::temp_dir().join(format!("ordo-config-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("temporary directory");
        let path = dir.join("ordo.toml");
        std::fs::write(
            &path,
            "port = 7001\nbind = ['127.0.0.1']\nprotected-mode = true\nappendfsync = 'everysec'\n",
        )
        .expect("write");
        let path = path.to_str().expect("utf-8").to_owned();
        for args in [vec![path.as_str(), "--port", "7002"], vec!["--port", "7002", "--config", path.as_str()]]
        {
            let config = serve(&args);
            assert_eq!((config.port, config.bind.len()), (7002, 1));
            assert_eq!(config.appendfsync, node::FsyncPolicy::Everysec);
        }
        std::fs::remove_dir_all(&dir).expect("clean up");
    }

    #[test]
    fn errors_name_the_source_and_what_is_allowed() {
        assert!(error(&["--prot", "1"]).contains("did you mean 'port'"), "{}", error(&["--prot", "1"]));
        let message = error(&["--appendfsync", "never"]);
        assert!(
            message.contains("command line: appendfsync") && message.contains("always, everysec, no"),
            "{message}"
        );
        assert!(error(&["/nonexistent/ordo.toml"]).contains("/nonexistent/ordo.toml"));
        let mut config = Config::default();
        let message = config
            .read_toml("ordo.toml", "[server]\nport = 1")
            .expect_err("tables are no settings")
            .to_string();
        assert!(message.contains("ordo.toml: there is no setting 'server'"), "{message}");
        assert!(
            config
                .read_toml("ordo.toml", "port = ")
                .expect_err("not TOML")
                .to_string()
                .contains("not a TOML file")
        );
    }

    #[test]
    fn an_open_address_needs_a_password_or_insistence() {
        for bind in ["0.0.0.0", "*", "::*", "::", "-192.0.2.1"] {
            assert!(error(&["--bind", bind]).contains("--requirepass"), "{bind}");
        }
        serve(&["--bind", "0.0.0.0", "--requirepass", "x"]);
        serve(&["--bind", "0.0.0.0", "--protected-mode", "no"]);
    }

    #[test]
    fn clients_with_tls_and_without_it_have_ports_of_their_own() {
        let error = error(&["--port", "7000", "--tls-port", "7000"]);
        assert!(error.contains("--port 0"), "{error}");
        assert!(serve(&["--port", "0", "--tls-port", "7000"]).serves_tls_only());
        assert!(!serve(&["--port", "0"]).serves_tls_only());
    }

    #[test]
    fn the_help_text_lists_every_setting() {
        let text = help();
        for setting in SETTINGS {
            let is_listed = text.contains(&format!("--{}", setting.name));
            assert_eq!(is_listed, !HIDDEN.contains(&setting.name), "{}", setting.name);
        }
        for (_, heading) in HEADINGS {
            assert!(text.contains(&format!("\n{heading}:\n")), "{heading}");
        }
    }
}
