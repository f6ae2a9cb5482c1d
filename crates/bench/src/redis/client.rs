//! A plain blocking connection: for what surrounds a measurement (loading, scripts, checks).

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a set-up command may take: loading a million keys answers well within it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A reply, built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status, a bulk string or a number as text.
    Text(String),
    /// No value.
    Nil,
    /// An error.
    Error(String),
    /// A sequence.
    List(Vec<Answer>),
}

impl Answer {
    /// The text, or an error that names the command.
    pub fn text(self, command: &str) -> Result<String> {
        match self {
            Answer::Text(text) => Ok(text),
            other => bail!("{command} answered {other:?}"),
        }
    }
}

/// A blocking connection.
pub struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    /// Connects, and authenticates if there is a password.
    pub fn connect(host: &str, port: u16, password: Option<&str>) -> Result<Client> {
        let stream = TcpStream::connect((host, port)).with_context(|| {
            format!("could not connect to {host}:{port}: is a server running there?")
        })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut client = Client {
            reader: BufReader::with_capacity(1 << 16, stream),
        };
        if let Some(password) = password {
            client.call(&["AUTH", password])?.text("AUTH")?;
        }
        Ok(client)
    }

    /// Sends one command and waits for its reply.
    pub fn call(&mut self, args: &[&str]) -> Result<Answer> {
        let mut bytes = Vec::new();
        put_command(&mut bytes, args);
        self.send(&bytes)?;
        self.answer()
            .with_context(|| format!("{} got no reply", args[0]))
    }

    /// Sends prepared commands.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.reader
            .get_mut()
            .write_all(bytes)
            .context("the server closed the connection")
    }

    /// Waits for one reply.
    pub fn answer(&mut self) -> Result<Answer> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line)? == 0 {
            bail!("the server closed the connection");
        }
        let text =
            String::from_utf8_lossy(line.get(1..line.len().saturating_sub(2)).unwrap_or(&[]))
                .into_owned();
        match line.first() {
            Some(b'+' | b':' | b'#' | b',' | b'(') => Ok(Answer::Text(text)),
            Some(b'-') => Ok(Answer::Error(text)),
            Some(b'_') => Ok(Answer::Nil),
            Some(b'$' | b'=' | b'!') => {
                let Ok(length) = usize::try_from(text.parse::<i64>()?) else {
                    return Ok(Answer::Nil);
                };
                let mut body = vec![0; length + 2];
                self.reader.read_exact(&mut body)?;
                body.truncate(length);
                Ok(Answer::Text(String::from_utf8_lossy(&body).into_owned()))
            }
            Some(&kind @ (b'*' | b'~' | b'>' | b'%')) => {
                let Ok(length) = usize::try_from(text.parse::<i64>()?) else {
                    return Ok(Answer::Nil);
                };
                let length = if kind == b'%' { length * 2 } else { length };
                (0..length)
                    .map(|_| self.answer())
                    .collect::<Result<_>>()
                    .map(Answer::List)
            }
            _ => bail!(
                "the server sent {:?}, which is not RESP",
                String::from_utf8_lossy(&line)
            ),
        }
    }

    /// Runs many commands in pipelines of `chunk`; every reply must pass `accept`.
    pub fn pipeline(
        &mut self,
        commands: impl Iterator<Item = Vec<String>>,
        chunk: usize,
        mut accept: impl FnMut(Answer) -> Result<()>,
    ) -> Result<()> {
        let mut commands = commands.peekable();
        let mut bytes = Vec::new();
        while commands.peek().is_some() {
            bytes.clear();
            let mut sent = 0;
            for args in commands.by_ref().take(chunk) {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                put_command(&mut bytes, &args);
                sent += 1;
            }
            self.send(&bytes)?;
            for _ in 0..sent {
                accept(self.answer()?)?;
            }
        }
        Ok(())
    }
}

fn put_command(bytes: &mut Vec<u8>, args: &[&str]) {
    bytes.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
    }
}
