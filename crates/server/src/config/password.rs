//! The password of `requirepass`: a hash of it, wherever it comes from.

use super::{Config, ConfigError, Kind, Parameter};
use redis_surface::acl::PasswordHash;
use std::fmt;

/// The variable that has the password where no setting has it.
pub const PASSWORD_VARIABLE: &str = "ORDO_REQUIREPASS";

/// A password, or none. Its text form is `#` and the digits of its SHA-256, so that nothing that shows or
/// writes settings shows it.
#[derive(Clone, Default)]
pub struct Password {
    hash: Option<PasswordHash>,
    /// The password itself, if it was given: a node that joins shows it to the others.
    plain: Option<String>,
}

impl Password {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        self.hash.is_none()
    }
    /// Its hash, if there is one.
    pub fn hash(&self) -> Option<PasswordHash> {
        self.hash
    }
    /// Takes the password itself out, if that was given.
    pub fn take_plain(&mut self) -> Option<String> {
        self.plain.take()
    }
    /// What a file may have for it: the password itself, if that was given.
    pub fn for_file(&self) -> String {
        self.plain.clone().unwrap_or_else(|| self.to_text())
    }
}

/// The same password, however it was given.
impl PartialEq for Password {
    fn eq(&self, other: &Password) -> bool {
        self.hash == other.hash
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_none() { "Password(none)" } else { "Password(..)" })
    }
}

impl Parameter for Password {
    fn to_text(&self) -> String {
        let text = self.hash.map(|hash| hash.behind(b'#'));
        text.map_or_else(String::new, |text| String::from_utf8_lossy(&text).into_owned())
    }
    fn from_text(text: &str, _kind: &Kind, _now: &Password) -> Result<Password, String> {
        let digits = text.strip_prefix('#').map(str::as_bytes);
        Ok(match digits.and_then(PasswordHash::from_digits) {
            Some(hash) => Password { hash: Some(hash), plain: None },
            None if text.is_empty() => Password::default(),
            None => Password { hash: Some(PasswordHash::of(text.as_bytes())), plain: Some(text.to_owned()) },
        })
    }
}

impl Config {
    /// Takes the password from `requirepass-file`, or else from the environment's variable, unless
    /// `requirepass` gives one.
    pub(super) fn find_password(&mut self, variable: Option<String>) -> Result<(), ConfigError> {
        if !self.requirepass.is_none() {
            return Ok(());
        }
        let path = &self.requirepass_file;
        let text = match path.is_empty() {
            true => variable.unwrap_or_default(),
            false => {
                let text = std::fs::read_to_string(path).map_err(|cause| {
                    ConfigError::Together(format!(
                        "requirepass-file: {path} cannot be read: {cause}. It is looked for from the \
                         working directory on, and has the password and nothing else"
                    ))
                })?;
                let text = text.trim_end_matches(['\r', '\n']).to_owned();
                if text.is_empty() {
                    return Err(ConfigError::Together(format!(
                        "requirepass-file: {path} is empty: write the password into it, or leave the \
                         setting out"
                    )));
                }
                text
            }
        };
        self.requirepass =
            Password::from_text(&text, &Kind::Password, &self.requirepass).map_err(ConfigError::Together)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH_OF_X: &str = "#2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881";

    fn password(text: &str) -> Password {
        Password::from_text(text, &Kind::Password, &Password::default()).expect("any text")
    }

    #[test]
    fn a_password_shows_its_hash_only() {
        let mut given = password("x");
        assert_eq!(given.to_text(), HASH_OF_X);
        assert!(!format!("{given:?}").contains('x'));
        assert_eq!(password(HASH_OF_X), given);
        assert_eq!(given.take_plain().as_deref(), Some("x"));
        assert_eq!(password(&given.to_text()).take_plain(), None);
        for text in ["#x", "#", HASH_OF_X.trim_end_matches('1')] {
            assert_eq!(password(text).take_plain().as_deref(), Some(text), "no hash");
        }
        assert!(password("").is_none() && password("").to_text().is_empty());
    }

    #[test]
    fn the_setting_wins_over_the_file_and_the_file_over_the_environment() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("password");
        let path = path.to_str().expect("UTF-8");
        let found = |requirepass: &str, file: &str, variable: Option<&str>| {
            let mut config = Config {
                requirepass: password(requirepass),
                requirepass_file: file.to_owned(),
                ..Config::default()
            };
            let found = config.find_password(variable.map(str::to_owned));
            found
                .map(|()| config.requirepass.take_plain().unwrap_or_default())
                .map_err(|error| error.to_string())
        };
        let error = found("", path, Some("c")).expect_err("no file");
        assert!(error.contains(path) && error.contains("cannot be read"), "{error}");
        std::fs::write(path, "\r\n").expect("written");
        let error = found("", path, Some("c")).expect_err("nothing in it");
        assert!(error.contains("is empty"), "{error}");
        std::fs::write(path, " b \n").expect("written");
        assert_eq!(found("a", path, Some("c")).as_deref(), Ok("a"));
        assert_eq!(found("", path, Some("c")).as_deref(), Ok(" b "));
        assert_eq!(found("", "", Some("c")).as_deref(), Ok("c"));
        assert_eq!(found("", "", None).as_deref(), Ok(""));
    }
}
