//! Who may reach the HTTP port, and how many at a time.

use super::{Config, ConfigError};

/// How many connections may be open at a time at each address of the HTTP port.
pub const HTTP_CONNECTIONS_MAX: usize = 64;

impl Config {
    /// Refuses a word of `http-bind` that stands for an address which other machines may reach, unless there
    /// is a token.
    pub(crate) fn admit_open_http(&self, word: &str) -> Result<(), ConfigError> {
        if self.http_token_file.is_empty() {
            return Err(ConfigError::Together(format!(
                "http-bind {word}: anyone who reaches this address could read what the server does, because \
                 there is no token. Name the file of one with --http-token-file, or bind to 127.0.0.1 only"
            )));
        }
        Ok(())
    }

    /// How many files the HTTP port may have open: none where there is no such port.
    pub(crate) fn http_files_max(&self) -> u64 {
        match self.http_port {
            0 => 0,
            _ => (self.http_bind.len() * (1 + HTTP_CONNECTIONS_MAX)) as u64,
        }
    }

    /// The token of `http-token-file`; `None` if no file is named.
    ///
    /// # Errors
    /// The file cannot be read, or holds no token.
    pub(crate) fn http_token(&self) -> Result<Option<String>, ConfigError> {
        let path = &self.http_token_file;
        if path.is_empty() {
            return Ok(None);
        }
        let text = std::fs::read_to_string(path).map_err(|cause| {
            ConfigError::Together(format!(
                "http-token-file: {path} cannot be read: {cause}. It is looked for from the working \
                 directory on, and has the token and nothing else"
            ))
        })?;
        let token = text.trim();
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ConfigError::Together(format!(
                "http-token-file: {path} must hold one word of ASCII letters, digits and signs, which is the \
                 token: 'openssl rand -hex 32' makes a good one"
            )));
        }
        Ok(Some(token.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Invocation;

    fn error(words: &[&str]) -> String {
        match Config::from_args(words.iter().map(|word| (*word).to_owned())) {
            Err(error) => error.to_string(),
            Ok(Invocation::Serve(_)) => String::new(),
            Ok(other) => panic!("{words:?} gave {other:?}"),
        }
    }

    #[test]
    fn an_open_address_needs_a_token() {
        for bind in ["0.0.0.0", "*", "::", "-192.0.2.1"] {
            let error = error(&["--http-port", "9121", "--http-bind", bind]);
            assert!(error.contains("http-bind") && error.contains("--http-token-file"), "{bind}: {error}");
        }
        let open = ["--http-port", "9121", "--http-bind", "0.0.0.0", "--http-token-file"];
        let file = tempfile::NamedTempFile::new().expect("a file");
        let path = file.path().to_str().expect("UTF-8");
        assert!(error(&[&open[..], &[path]].concat()).contains("one word"), "it is empty");
        std::fs::write(path, "secret").expect("written");
        assert_eq!(error(&[&open[..], &[path]].concat()), "");
        assert_eq!(error(&["--http-bind", "0.0.0.0"]), "", "nobody listens");
        let error = error(&["--port", "9121", "--http-port", "9121"]);
        assert!(error.contains("Choose another one"), "{error}");
    }

    #[test]
    fn a_token_is_one_word_of_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let config =
            Config { http_token_file: path.to_str().expect("UTF-8").to_owned(), ..Config::default() };
        let error = config.http_token().expect_err("no file").to_string();
        assert!(error.contains("cannot be read"), "{error}");
        for text in ["", " \n", "two words", "\u{e9}"] {
            std::fs::write(&path, text).expect("written");
            let error = config.http_token().expect_err(text).to_string();
            assert!(error.contains("one word"), "{error}");
        }
        std::fs::write(&path, "secret\n").expect("written");
        assert_eq!(config.http_token().expect("a token").as_deref(), Some("secret"));
        assert_eq!(Config::default().http_token().expect("none is named"), None);
    }
}
