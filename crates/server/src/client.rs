//! A plain blocking connection of a Redis client: for tools that ask a server something, and for what
//! surrounds a measurement (loading, scripts, checks).

mod transaction;

pub use transaction::{Transaction, is_conflict};

use crate::cluster::config::host_and_port;
use crate::tls::{self, ClientTls};
use rustls::{ClientConnection, StreamOwned};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a set-up command may take: loading a million keys answers well within it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest text, and the longest list, that is believed: more is no reply of ours.
const LENGTH_MAX: i64 = 1 << 30;

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

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Text(text) | Answer::Error(text) => f.write_str(text),
            Answer::Nil | Answer::List(_) => write!(f, "{self:?}"),
        }
    }
}

impl Answer {
    /// The text, or an error that names the command.
    pub fn text(self, command: &str) -> Result<String, ClientError> {
        match self {
            Answer::Text(text) => Ok(text),
            answer => Err(ClientError::Unexpected { command: command.to_owned(), answer }),
        }
    }
}

/// Why there is no reply, or not the one that was hoped for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody can be reached there.
    #[error("could not connect to {address}: {cause}: is a server running there?")]
    Unreachable {
        /// Host and port.
        address: String,
        /// Why.
        cause: io::Error,
    },
    /// The connection ended, or was silent for too long. What was asked for may have happened.
    #[error("{command} got no reply: {cause}")]
    Lost {
        /// What was sent.
        command: String,
        /// Why.
        cause: io::Error,
    },
    /// There is no trust, or no TLS at the other end.
    #[error("TLS with {address} failed: {cause}")]
    Tls {
        /// Host and port.
        address: String,
        /// Why.
        cause: io::Error,
    },
    /// Whoever listens there is no Redis server.
    #[error("the server sent {0:?}, which is not RESP: is it a Redis server?")]
    NotResp(String),
    /// An error, or a reply of another kind.
    #[error("{command} answered {answer}")]
    Unexpected {
        /// What was sent.
        command: String,
        /// The reply.
        answer: Answer,
    },
}

/// What it takes to be let in by a server.
#[derive(Clone, Default)]
pub struct Access {
    /// The user, if it is not `default`.
    pub user: Option<String>,
    /// The password, if there is one.
    pub password: Option<String>,
    /// With what the connection is secured, if it is.
    pub tls: Option<ClientTls>,
}

impl Access {
    /// Connects as [`Client::open`] does, without saying the password.
    pub fn open(&self, address: &str, patience: Duration) -> Result<Client, ClientError> {
        Client::open_with(address, patience, self.tls.as_ref())
    }

    /// Says the password, if there is one. Gives the server's reply.
    pub fn log_in(&self, client: &mut Client) -> Result<Option<Answer>, ClientError> {
        let Some(password) = &self.password else {
            return Ok(None);
        };
        let answer = match &self.user {
            Some(user) => client.call(&["AUTH", user, password]),
            None => client.call(&["AUTH", password]),
        };
        answer.map(Some)
    }
}

/// A socket that waits, with TLS or without.
enum Wire {
    Plain(TcpStream),
    Secured(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.read(room),
            Wire::Secured(stream) => stream.read(room),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(stream) => stream.write(bytes),
            Wire::Secured(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Wire::Plain(stream) => stream.flush(),
            Wire::Secured(stream) => stream.flush(),
        }
    }
}

/// A blocking connection.
pub struct Client {
    reader: BufReader<Wire>,
    /// What was last sent, for errors.
    command: String,
}

impl Client {
    /// Connects, and authenticates if there is a password.
    pub fn connect(host: &str, port: u16, password: Option<&str>) -> Result<Client, ClientError> {
        let address = format!("{host}:{port}");
        let unreachable = |cause| ClientError::Unreachable { address: address.clone(), cause };
        let stream = TcpStream::connect((host, port)).map_err(unreachable)?;
        let mut client = Client::over(stream, ANSWER_TIMEOUT, None).map_err(unreachable)?;
        if let Some(password) = password {
            client.call(&["AUTH", password])?.text("AUTH")?;
        }
        Ok(client)
    }

    /// Connects to `host:port`. Neither connecting to one of its addresses nor a silence before a reply may
    /// take longer than `patience`.
    pub fn open(address: &str, patience: Duration) -> Result<Client, ClientError> {
        Client::open_with(address, patience, None)
    }

    /// The same, and with TLS if that is given.
    pub fn open_with(
        address: &str,
        patience: Duration,
        tls: Option<&ClientTls>,
    ) -> Result<Client, ClientError> {
        let connect = || -> io::Result<Client> {
            let Some(target) = host_and_port(address) else {
                let problem = "it is not host:port";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            };
            let mut failure = io::Error::other("the name has no address");
            let addresses: Vec<SocketAddr> = target.to_socket_addrs()?.collect();
            for address in addresses {
                match TcpStream::connect_timeout(&address, patience) {
                    Ok(stream) => return Client::over(stream, patience, tls),
                    Err(error) => failure = error,
                }
            }
            Err(failure)
        };
        connect().map_err(|cause| {
            let address = address.to_owned();
            match tls::cause(&cause) {
                Some(_) => ClientError::Tls { address, cause },
                None => ClientError::Unreachable { address, cause },
            }
        })
    }

    fn over(stream: TcpStream, patience: Duration, tls: Option<&ClientTls>) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        wait_for(&stream, patience)?;
        let wire = match tls {
            None => Wire::Plain(stream),
            Some(tls) => Wire::Secured(Box::new(tls.over(stream)?)),
        };
        Ok(Client { reader: BufReader::with_capacity(1 << 16, wire), command: String::new() })
    }

    /// From now on a silence before a reply may take so long.
    pub fn set_patience(&mut self, patience: Duration) -> io::Result<()> {
        match self.reader.get_ref() {
            Wire::Plain(stream) => wait_for(stream, patience),
            Wire::Secured(stream) => wait_for(stream.get_ref(), patience),
        }
    }

    /// Sends one command and waits for its reply.
    pub fn call(&mut self, args: &[&str]) -> Result<Answer, ClientError> {
        let mut bytes = Vec::new();
        put_command(&mut bytes, args);
        self.command = args[0].to_owned();
        self.send(&bytes)?;
        self.answer()
    }

    /// Sends one command whose reply is a bulk string of any bytes. The error is the server's, if it refused.
    pub fn call_for_bytes(&mut self, args: &[&str]) -> Result<Result<Vec<u8>, String>, ClientError> {
        let mut bytes = Vec::new();
        put_command(&mut bytes, args);
        self.command = args[0].to_owned();
        self.send(&bytes)?;
        match self.answer_in_bytes()? {
            Ok(Some(bytes)) => Ok(Ok(bytes)),
            Ok(None) => Err(ClientError::Unexpected { command: args[0].to_owned(), answer: Answer::Nil }),
            Err(text) => Ok(Err(text)),
        }
    }

    /// Waits for an answer as [`Client::answer`] does: one that is a bulk string of any bytes, or none. The
    /// inner error is the server's, if it refused.
    pub fn answer_in_bytes(&mut self) -> Result<Result<Option<Vec<u8>>, String>, ClientError> {
        let (line, text) = self.line()?;
        match line[0] {
            b'-' => Ok(Err(text)),
            b'$' => match length(&line, &text)? {
                Some(length) => self.body(length).map(|body| Ok(Some(body))),
                None => Ok(Ok(None)),
            },
            _ => Err(not_resp(&line)),
        }
    }

    /// Waits for the answer to a SCAN: where to go on, and keys.
    pub fn scan_answer(&mut self) -> Result<(Vec<u8>, Vec<Vec<u8>>), ClientError> {
        let unexpected = |answer| ClientError::Unexpected { command: "SCAN".to_owned(), answer };
        let (line, text) = self.line()?;
        match line[0] {
            b'*' if text == "2" => {}
            b'-' => return Err(unexpected(Answer::Error(text))),
            _ => return Err(not_resp(&line)),
        }
        let text_or_nothing = |client: &mut Client| match client.answer_in_bytes()? {
            Ok(bytes) => Ok(bytes.unwrap_or_default()),
            Err(text) => Err(unexpected(Answer::Error(text))),
        };
        let cursor = text_or_nothing(self)?;
        let (line, text) = self.line()?;
        let count = length(&line, &text)?.filter(|_| line[0] == b'*').ok_or_else(|| not_resp(&line))?;
        let keys: Result<_, _> = (0..count).map(|_| text_or_nothing(self)).collect();
        Ok((cursor, keys?))
    }

    /// Ends the exchange of commands and answers: what the server sends is read as it comes.
    pub fn into_raw(self) -> RawLink {
        RawLink(self.reader)
    }

    /// What is sent from now on is called so in errors, until a command is called.
    pub fn name_what_is_sent(&mut self, name: &str) {
        name.clone_into(&mut self.command);
    }

    /// Sends commands that [`put_command`] made. Each gets an answer.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let wire = self.reader.get_mut();
        let sent = wire.write_all(bytes).and_then(|()| wire.flush());
        sent.map_err(|cause| self.lost(cause))
    }

    fn lost(&self, cause: io::Error) -> ClientError {
        let cause = match cause.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the server closed the connection"),
            // What a system calls a timeout of a socket.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::other("the server is silent"),
            _ => cause,
        };
        ClientError::Lost { command: self.command.clone(), cause }
    }

    /// Waits for the answer to the first command that has none yet.
    pub fn answer(&mut self) -> Result<Answer, ClientError> {
        let (line, text) = self.line()?;
        match line[0] {
            b'+' | b':' | b'#' | b',' | b'(' => Ok(Answer::Text(text)),
            b'-' => Ok(Answer::Error(text)),
            b'_' => Ok(Answer::Nil),
            b'$' | b'=' | b'!' => {
                let Some(length) = length(&line, &text)? else {
                    return Ok(Answer::Nil);
                };
                let body = self.body(length)?;
                Ok(Answer::Text(String::from_utf8_lossy(&body).into_owned()))
            }
            kind @ (b'*' | b'~' | b'>' | b'%') => {
                let Some(length) = length(&line, &text)? else {
                    return Ok(Answer::Nil);
                };
                let length = if kind == b'%' { length * 2 } else { length };
                (0..length).map(|_| self.answer()).collect::<Result<_, _>>().map(Answer::List)
            }
            _ => Err(not_resp(&line)),
        }
    }

    /// A whole line, and what it has behind its first byte.
    fn line(&mut self) -> Result<(Vec<u8>, String), ClientError> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line);
        read.map_err(|cause| self.lost(cause))?;
        if !line.ends_with(b"\r\n") {
            return Err(match line.is_empty() {
                true => self.lost(io::ErrorKind::UnexpectedEof.into()),
                false => not_resp(&line),
            });
        }
        let text = line.get(1..line.len() - 2).unwrap_or_default();
        let text = String::from_utf8_lossy(text).into_owned();
        match line.len() {
            0..3 => Err(not_resp(&line)),
            _ => Ok((line, text)),
        }
    }

    /// The bytes of a bulk string, of which the line before told the length.
    fn body(&mut self, length: usize) -> Result<Vec<u8>, ClientError> {
        let mut body = vec![0; length + 2];
        let read = self.reader.read_exact(&mut body);
        read.map_err(|cause| self.lost(cause))?;
        body.truncate(length);
        Ok(body)
    }

    /// Runs many commands in pipelines of `chunk`; every reply must pass `accept`.
    pub fn pipeline<E: From<ClientError>>(
        &mut self,
        commands: impl Iterator<Item = Vec<String>>,
        chunk: usize,
        mut accept: impl FnMut(Answer) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut commands = commands.peekable();
        let mut bytes = Vec::new();
        while let Some(first) = commands.peek() {
            self.command.clone_from(&first[0]);
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

/// What is left of a [`Client`] whose server sends what is no answer: bytes in both directions. A silence of
/// the client's patience is an error of a kind of its own ([`RawLink::is_silence`]).
pub struct RawLink(BufReader<Wire>);

impl RawLink {
    /// Whether nothing came, and something may still come.
    pub fn is_silence(error: &io::Error) -> bool {
        matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
    }
}

impl Read for RawLink {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0.read(room)
    }
}

impl BufRead for RawLink {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }
    fn consume(&mut self, bytes: usize) {
        self.0.consume(bytes);
    }
}

impl Write for RawLink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// How long a socket's reads and writes may take.
fn wait_for(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))
}

/// The number behind a type byte; `None` for the null of RESP2, which is -1.
fn length(line: &[u8], text: &str) -> Result<Option<usize>, ClientError> {
    match text.parse::<i64>() {
        Ok(-1) => Ok(None),
        Ok(length @ 0..=LENGTH_MAX) => Ok(Some(length as usize)),
        _ => Err(not_resp(line)),
    }
}

fn not_resp(line: &[u8]) -> ClientError {
    let start = &line[..line.len().min(80)];
    ClientError::NotResp(String::from_utf8_lossy(start).into_owned())
}

/// Appends a command as RESP.
pub fn put_command(bytes: &mut Vec<u8>, args: &[&str]) {
    bytes.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n{arg}\r\n", arg.len()).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// What a client makes of a server that replies with these bytes to whatever it is sent, and then closes.
    fn asked(reply: &'static [u8]) -> Result<Answer, ClientError> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut command = [0; 14];
            stream.read_exact(&mut command).expect("PING");
            assert_eq!(&command, b"*1\r\n$4\r\nPING\r\n");
            stream.write_all(reply).expect("sent");
        });
        let answer = Client::open(&address, PATIENCE)?.call(&["PING"]);
        server.join().expect("the server did its part");
        answer
    }

    #[test]
    fn replies_of_all_kinds_are_built() {
        let text = |text: &str| Answer::Text(text.to_owned());
        for (bytes, answer) in [
            (&b"+PONG\r\n"[..], text("PONG")),
            (b":12\r\n", text("12")),
            (b"$5\r\na\r\nbc\r\n", text("a\r\nbc")),
            (b"$-1\r\n", Answer::Nil),
            (b"_\r\n", Answer::Nil),
            (b"-ERR no\r\n", Answer::Error("ERR no".to_owned())),
            (b"*2\r\n:1\r\n*0\r\n", Answer::List(vec![text("1"), Answer::List(Vec::new())])),
            (b"%1\r\n+a\r\n+b\r\n", Answer::List(vec![text("a"), text("b")])),
        ] {
            assert_eq!(asked(bytes).expect("a reply"), answer);
        }
    }

    #[test]
    fn what_is_no_reply_is_told_apart() {
        for bytes in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"$x\r\n", b"$-2\r\n", b"$9999999999\r\n", b"\r\n", b"+PO"]
        {
            let error = asked(bytes).expect_err("no reply");
            assert!(matches!(error, ClientError::NotResp(_)), "{bytes:?}: {error}");
        }
        for bytes in [&b""[..], b"$5\r\nab", b"*2\r\n:1\r\n"] {
            let error = asked(bytes).expect_err("no reply").to_string();
            assert_eq!(error, "PING got no reply: the server closed the connection");
        }
    }

    #[test]
    fn nobody_and_nowhere_are_unreachable() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        drop(listener);
        for address in [address.as_str(), "nowhere", "127.0.0.1:x"] {
            let error = Client::open(address, PATIENCE).err().expect("nobody");
            assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
            assert!(error.to_string().contains(address), "{error}");
        }
    }
}
